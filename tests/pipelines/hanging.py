"""hanging.py - a rank of torch.distributed that hangs in the way that its argument names, after some matched collectives.

hanging.py BACKEND FAULT RANK, in a directory of its own: the rank with the fault sleeps in `asleep`, calls another operation (`operation`), reduces
another number of elements (`count`), or raises and leaves (`raise`). With `inside` it sleeps, while the others call a barrier that
blocks inside torch's operator. It writes the time of the fault into `fault_at`.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

backend, fault, at_fault = sys.argv[1], sys.argv[2], int(sys.argv[3])
rank = int(os.environ['RANK'])
device = 'cuda' if backend == 'nccl' else 'cpu'


def asleep():
    time.sleep(1000)  # the line of the fault


def fail():
    raise ValueError('a rank gives up')


def train():
    x = torch.ones(1000, device=device)
    for _ in range(5):
        dist.all_reduce(x)
    if backend == 'nccl':
        torch.cuda.synchronize()
    if rank == at_fault:
        with open('fault_at', 'w') as file:
            file.write(str(time.monotonic()))
    print('begun', flush=True)
    if rank == at_fault and fault in ('sleep', 'inside'):
        asleep()
    if rank == at_fault and fault == 'raise':
        fail()
    if rank == at_fault and fault == 'operation':
        dist.broadcast(x, rank)
    elif rank == at_fault and fault == 'count':
        dist.all_reduce(x[:900])
    elif fault == 'inside':
        dist.monitored_barrier()
    else:
        dist.all_reduce(x)
    if backend == 'nccl':
        torch.cuda.synchronize()  # the wait for the device
    dist.barrier()
    time.sleep(1000)


if backend == 'nccl':
    torch.cuda.set_device(rank)
dist.init_process_group(backend)
train()
