import torch
from lightning.fabric import Fabric


def main():
    fabric = Fabric(accelerator="cuda", devices=2, strategy="ddp")
    fabric.launch()
    model = torch.nn.Linear(2, 2)
    model = fabric.setup_module(model)
    loss = model(torch.ones(1, 2)).sum()
    fabric.backward(loss)
    total = fabric.all_reduce(loss.detach())
    if fabric.global_rank == 0:
        print(total)
    fabric.barrier()


if __name__ == "__main__":
    main()
