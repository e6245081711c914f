# expect: DDP103 error line 17
import os
import threading

import torch.distributed as dist


def rank_main(rank):
    os.environ["RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = "2"
    dist.init_process_group("gloo")
    dist.barrier()


def main():
    results = []
    workers = [threading.Thread(target=lambda r=r: results.append(rank_main(r))) for r in (0, 1)]
    [w.start() for w in workers]
    [w.join() for w in workers]
    print(results)


if __name__ == "__main__":
    main()
