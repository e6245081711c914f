"""Accelerate creates the group where the Accelerator is made."""

import os

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import ddp_doctor

with ddp_doctor.watch(after=float(os.environ.get("AFTER", "4"))):
    accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
data = DataLoader(TensorDataset(torch.randn(16, 2)), batch_size=2)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for (batch,) in data:
    accelerator.backward(model(batch).sum())
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {accelerator.process_index} of {accelerator.num_processes} trained", flush=True)
accelerator.end_training()
