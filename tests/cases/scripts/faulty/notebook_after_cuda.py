# expect: DDP104 error line 14
import torch
from accelerate import Accelerator, notebook_launcher

model = torch.nn.Linear(2, 2).to("cuda")


def train():
    accelerator = Accelerator()
    net = accelerator.prepare(torch.nn.Linear(2, 2)).cuda()
    print(net(torch.ones(1, 2).cuda()))


notebook_launcher(train, num_processes=2)
