# expect: DDP107 error line 11
import os

import torch
import torch.distributed as dist


def main():
    rank = int(os.environ["LOCAL_RANK"])
    print(torch.cuda.get_device_name())
    os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    dist.init_process_group("nccl")
    x = torch.ones(1).cuda()
    dist.all_reduce(x)


main()
