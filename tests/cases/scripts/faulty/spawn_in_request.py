# expect: DDP103 warning line 18
import torch.distributed as dist
import torch.multiprocessing as mp
from flask import Flask

app = Flask(__name__)


def worker(rank, size):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29580", rank=rank, world_size=size)
    dist.barrier()


# a handler runs in a thread of the server


@app.route("/train", methods=["POST"])
def train():
    mp.spawn(worker, args=(2,), nprocs=2)
    return "ok"


if __name__ == "__main__":
    app.run()
