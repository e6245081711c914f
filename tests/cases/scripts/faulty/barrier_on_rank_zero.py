# expect: DDP601 error line 13
import os

import torch
import torch.distributed as dist


def main():
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    if rank == 0:
        torch.save({}, "model.pt")
        dist.barrier()
    print("trained")


if __name__ == "__main__":
    main()
