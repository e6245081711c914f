# expect: DDP104 error line 9
import os

import torch

torch.cuda.init()
parent = os.getpid()
# two processes from here on
if os.fork() == 0:
    print(torch.ones(1).cuda())
    os._exit(0)
