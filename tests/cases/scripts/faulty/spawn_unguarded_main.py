# expect: DDP115 error line 15
import multiprocessing as mp

import torch.distributed as dist


def worker(rank, size):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29587", rank=rank, world_size=size)
    dist.barrier()


def main():
    mp.set_start_method("spawn")
    children = [mp.Process(target=worker, args=(r, 2)) for r in range(2)]
    [child.start() for child in children]
    [child.join() for child in children]


main()
