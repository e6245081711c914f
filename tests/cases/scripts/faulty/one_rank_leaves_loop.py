# expect: DDP601 error line 14
import torch
import torch.distributed as dist


def train(loader, good_enough):
    rank = dist.get_rank()
    for batch in loader:
        loss = batch.mean()
        dist.all_reduce(loss)
        stop = False
        if rank == 0 and good_enough(loss):
            stop = True
        if rank == 0 and stop and good_enough(loss):
            break


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train([torch.ones(1)] * 5, lambda loss: loss.item() < 2)
