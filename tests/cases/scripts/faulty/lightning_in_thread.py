# expect: DDP103 warning line 20
# The training of a job that starts with a thread: a launcher off the main thread.
import threading

import pytorch_lightning as pl
import torch


class Net(pl.LightningModule):
    def training_step(self, batch, index):
        return batch.sum()


def training_func():
    trainer = pl.Trainer(accelerator="gpu", devices=[0, 1], strategy="ddp")
    trainer.fit(Net(), torch.ones(4))


if __name__ == "__main__":
    t1 = threading.Thread(target=training_func, name="target")
    t1.start()
    t1.join()
