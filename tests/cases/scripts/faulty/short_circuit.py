# expect: DDP601 error line 8
import torch.distributed as dist


def main(verbose=True):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    rank == 0 and dist.barrier()


main()
