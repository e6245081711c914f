import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        x, y = batch
        loss = ((self.layer(x) - y) ** 2).mean()
        self.log("loss", loss, sync_dist=True)
        if self.global_rank == 0 and index == 0:
            print("first batch", loss.item())
        return loss

    def on_train_epoch_end(self):
        scores = self.all_gather(torch.ones(1))
        if self.trainer.is_global_zero:
            print(scores)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    trainer = L.Trainer(strategy="ddp", devices=2, accelerator="gpu", max_epochs=1)
    trainer.fit(Regression(), DataLoader(data, batch_size=8))
    trainer.save_checkpoint("last.ckpt")
    if trainer.is_global_zero:
        print("done")
