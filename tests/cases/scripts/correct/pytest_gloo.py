import os

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    x = torch.full((1,), float(rank))
    dist.all_reduce(x)
    assert x.item() == sum(range(world_size))
    dist.destroy_process_group()


@pytest.fixture
def single():
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29600", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_sum(world_size):
    mp.spawn(run, args=(world_size, 29601), nprocs=world_size)


def test_alone(single):
    assert dist.get_world_size() == 1
