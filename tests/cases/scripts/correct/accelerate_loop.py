import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator()
    model = torch.nn.Linear(4, 1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8)
    with accelerator.main_process_first():
        print("prepare data")
    model, optimiser, loader = accelerator.prepare(model, optimiser, loader)
    for step, (x, y) in enumerate(loader):
        loss = ((model(x) - y) ** 2).mean()
        accelerator.backward(loss)
        optimiser.step()
        losses = accelerator.gather_for_metrics(loss.detach())
        if accelerator.is_main_process:
            print(step, losses.mean().item())
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")


if __name__ == "__main__":
    main()
