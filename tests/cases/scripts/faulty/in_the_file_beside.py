# expect: DDP601 error line 16 of beside/trainer.py
import torch.multiprocessing as mp
from beside.trainer import run_rank

if __name__ == "__main__":
    mp.spawn(run_rank, args=(2,), nprocs=2)
