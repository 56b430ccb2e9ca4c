"""faults_gpu_torch - torch on the simulated GPU, with one fault that can be planted: faults_gpu_torch.py NAME bad|good.

The names are those of the rules of `tfanalyze advise` that see the fault.
"""

import sys

import torch

NAME, BAD = sys.argv[1], sys.argv[2] == 'bad'


def no_matrix_engines():
    x = torch.ones(4096, 4096, device='cuda', dtype=torch.float32 if BAD else torch.bfloat16)
    for _ in range(30):
        torch.mm(x, x)


def cpu_operators():
    x = torch.ones(1000, 1000, device='cuda')
    for _ in range(6):
        if BAD:
            x.cpu()
            torch.rand(1000, 1000).sort()
        else:
            x * 2


def memory_limit():
    total = torch.cuda.get_device_properties(0).total_memory
    kept = [torch.empty(total // 20, dtype=torch.uint8, device='cuda') for _ in range(19 if BAD else 4)]
    for _ in range(6):
        kept[0][:1000].zero_()


globals()[NAME.replace('-', '_')]()
torch.cuda.synchronize()
