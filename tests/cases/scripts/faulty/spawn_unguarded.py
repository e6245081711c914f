# expect: DDP115 error line 11
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, size):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29586", rank=rank, world_size=size)
    dist.barrier()


mp.spawn(worker, args=(2,), nprocs=2)
print("done")
