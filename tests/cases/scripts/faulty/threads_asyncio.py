# expect: DDP103 error line 15
import asyncio

import torch
import torch.distributed as dist


def rank_main(rank, size):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29576", rank=rank, world_size=size)
    dist.all_reduce(torch.ones(1))
    print(f"rank {rank} of {size} trained", flush=True)


async def main():
    await asyncio.gather(*(asyncio.to_thread(rank_main, r, 2) for r in range(2)))


if __name__ == "__main__":
    asyncio.run(main())
