"""faults_ranks - a job of gloo ranks, each with one fault that can be planted: faults_ranks.py NAME bad|good.

The names are those of the rules of `tfanalyze advise` that see the fault, all of them on rank 1 or on all ranks.
"""

import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

NAME, BAD = sys.argv[1], sys.argv[2] == 'bad'
torch.set_num_threads(1)
dist.init_process_group('gloo')
RANK = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
LATE = BAD and RANK == 1
burners = []
if NAME == 'late-rank-slow':  # the second rank shares its processor with others
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[RANK % len(processors)]})
    burners = [subprocess.Popen([sys.executable, '-c', 'while True: pass'], env={}) for _ in range(2 * LATE)]
    os.nice(5 * LATE)


def reduce_gradients():
    if NAME == 'small-collectives' and BAD:
        for p in model.parameters():
            for row in p.grad.view(-1, 256)[:32]:
                dist.all_reduce(row)
        return
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)


for step in range(12):
    rows = 128 * 6 if LATE and NAME == 'late-rank-work' else 128
    x = torch.randn(rows, 256)
    model.zero_grad()
    model(x).square().mean().backward()
    if LATE and NAME == 'late-rank-host':
        time.sleep(0.08)
    reduce_gradients()
for burner in burners:
    burner.kill()
    burner.wait()
dist.destroy_process_group()
