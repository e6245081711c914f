# expect: DDP103 error line 22
import sys
import threading

import torch.distributed as dist


class Rank(threading.Thread):
    def __init__(self, rank, size):
        super().__init__()
        self.rank = rank
        self.size = size

    def run(self):
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29577", rank=self.rank, world_size=self.size)
        dist.barrier()


def main():
    size = int(sys.argv[1])
    for rank in range(size):
        Rank(rank, size).start()


if __name__ == "__main__":
    main()
