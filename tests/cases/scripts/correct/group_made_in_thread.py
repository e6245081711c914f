"""Each rank's checkpoint thread makes its gloo group itself, as torch's own background writer does."""

import threading

import torch.distributed as dist


def background():
    group = dist.new_group(backend="gloo")
    dist.barrier(group)


def main():
    dist.init_process_group("gloo")
    thread = threading.Thread(target=background)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
