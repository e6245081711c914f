# expect: DDP601 error line 9
import torch.distributed as dist
from pytorch_lightning.utilities import rank_zero_only


@rank_zero_only
def checkpoint():
    print("save")
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    checkpoint()
