# expect: DDP601 error line 10
import lightning as L


class Net(L.LightningModule):
    def validation_step(self, batch, index):
        loss = batch.sum()
        if self.global_rank == 0:
            print(loss)
            self.log("loss", loss, sync_dist=True)
