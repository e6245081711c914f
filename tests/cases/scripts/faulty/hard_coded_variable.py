# expect: DDP116 warning line 7
import os

import torch.distributed as dist

os.environ["MASTER_ADDR"] = "10.1.1.20"
os.environ["RANK"] = "0"
os.environ["WORLD_SIZE"] = "4"
dist.init_process_group("gloo")
dist.barrier()
