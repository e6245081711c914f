# expect: DDP111 error line 11
import torch.distributed as dist
import torch.multiprocessing as mp
from portpicker import pick_unused_port

PORT = pick_unused_port()


def worker(rank, size):
    # each child imports this file anew, and so picks another port
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{PORT}", rank=rank, world_size=size)
    dist.barrier()


if __name__ == "__main__":
    mp.spawn(worker, args=(2,), nprocs=2)
