# expect: DDP601 error line 11
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, size):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29581", rank=rank, world_size=size)
    names = [None] * size
    if rank == size - 1:
        print("last")
        dist.all_gather_object(names, f"rank {rank}")
        print(names)


if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2)
