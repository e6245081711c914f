# expect: DDP107 warning line 7
import os

import torch

if torch.cuda.is_available():
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
