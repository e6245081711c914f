import torch
from accelerate import Accelerator, notebook_launcher


def train(rate):
    accelerator = Accelerator()
    model = accelerator.prepare(torch.nn.Linear(2, 2))
    accelerator.backward(model(torch.randn(2, 2).to(accelerator.device)).sum() * rate)


notebook_launcher(train, (0.1,), num_processes=2)
