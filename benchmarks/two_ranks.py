"""The job that the doctor's trial is measured against: Gloo init and one all-reduce, started by torchrun."""

from __future__ import annotations

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
assert value.item() == dist.get_world_size()
dist.destroy_process_group()
