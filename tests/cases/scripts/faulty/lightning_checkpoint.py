# expect: DDP601 error line 13
import pytorch_lightning as pl


def main(model, loader):
    trainer = pl.Trainer(strategy="ddp", devices=2)
    trainer.fit(model, loader)
    finish(trainer)


def finish(trainer):
    if trainer.is_global_zero:
        trainer.save_checkpoint("last.ckpt")


if __name__ == "__main__":
    main(None, None)
