# expect: DDP103 error line 17
import concurrent.futures as cf

import torch
import torch.distributed as dist


def go(rank, size):
    dist.init_process_group(backend="gloo", init_method="tcp://127.0.0.1:29575", world_size=size, rank=rank)
    dist.all_reduce(torch.ones(1))
    print(f"rank {rank} of {size} trained", flush=True)


if __name__ == "__main__":
    size = 2
    with cf.ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(go, r, size) for r in range(size)]
        for f in futures:
            f.result()
