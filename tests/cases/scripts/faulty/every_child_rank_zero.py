# expect: DDP116 error line 7
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(index, size):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29588", rank=0, world_size=size)
    dist.barrier()


if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2)
