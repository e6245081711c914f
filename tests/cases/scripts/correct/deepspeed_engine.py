import argparse

import deepspeed
import torch


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()
    deepspeed.init_distributed()
    net = torch.nn.Linear(4, 4)
    engine, optimiser, _, _ = deepspeed.initialize(args=args, model=net, model_parameters=net.parameters())
    for step in range(10):
        loss = engine(torch.randn(2, 4).to(engine.device)).sum()
        engine.backward(loss)
        engine.step()
        if args.local_rank == 0:
            print(step, loss.item())
    engine.save_checkpoint("out")  # every rank, as DeepSpeed wants it


if __name__ == "__main__":
    main()
