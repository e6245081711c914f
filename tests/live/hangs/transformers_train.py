"""The Trainer of Transformers: its TrainingArguments create the group."""

import os
import tempfile

import torch
from transformers import Trainer, TrainingArguments

import ddp_doctor


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x, labels=None):
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}


with ddp_doctor.watch(after=float(os.environ.get("AFTER", "4"))):
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), use_cpu=True, max_steps=2, per_device_train_batch_size=2, report_to=[],
        save_strategy="no", disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
data = [{"x": torch.randn(2), "labels": torch.randn(1)} for _ in range(16)]
Trainer(model=Model(), args=arguments, train_dataset=data).train()
print(f"rank {arguments.process_index} of {arguments.world_size} trained", flush=True)
os.rmdir(arguments.output_dir)
torch.distributed.destroy_process_group()
