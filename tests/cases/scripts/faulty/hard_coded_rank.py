# expect: DDP116 warning line 7
import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo", init_method="tcp://10.1.1.20:23456", rank=0, world_size=2)
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    main()
