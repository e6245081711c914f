# expect: DDP103 error line 27
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def worker(rank, world_size):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29571", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(4, 1))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        loss = model(torch.full((2, 4), float(rank + 1))).pow(2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    total = sum(p.sum() for p in model.parameters()).detach()
    both = [torch.zeros_like(total) for _ in range(world_size)]
    dist.all_gather(both, total)
    assert torch.equal(both[0], both[1])
    print(f"rank {rank} of {world_size} trained", flush=True)
    dist.destroy_process_group()


threads = [threading.Thread(target=worker, args=(r, 2)) for r in range(2)]
for t in threads:
    t.start()
for t in threads:
    t.join()
