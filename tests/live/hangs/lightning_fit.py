"""Lightning creates the group inside fit: two ranks by its own launcher or torchrun.

HOW=thread fits in a thread, of the first process only; HOW=every-thread in one of each process.
"""

import os
import queue
import threading

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

import ddp_doctor

AFTER = float(os.environ.get("AFTER", "4"))


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def training_func():
    strategy = os.environ.get("STRATEGY", "ddp")
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy=strategy, max_steps=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    data = DataLoader(TensorDataset(torch.randn(16, 2)), batch_size=2)
    with ddp_doctor.watch(after=AFTER, until=torch.distributed.is_initialized):
        trainer.fit(Model(), data)
    print(f"rank {trainer.global_rank} of {trainer.world_size} trained", flush=True)


def serve(requests):
    requests.get()
    training_func()


if __name__ == "__main__":
    how = os.environ.get("HOW", "")
    if how:
        requests = queue.Queue()
        if how == "every-thread" or "LOCAL_RANK" not in os.environ:
            requests.put("train")
        thread = threading.Thread(target=serve, args=(requests,), name="trainer")
        thread.start()
        thread.join()
    else:
        training_func()
