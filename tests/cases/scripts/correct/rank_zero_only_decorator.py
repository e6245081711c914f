import functools

import torch.distributed as dist
from lightning.pytorch.utilities import rank_zero_only


def only_first(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return fn(*args, **kwargs)
        return None

    return wrapper


@only_first
def log(message):
    print(message)


@rank_zero_only
def plot(values):
    print("plot", values)


def main():
    dist.init_process_group("gloo")
    log("start")
    plot([1])
    dist.barrier()


if __name__ == "__main__":
    main()
