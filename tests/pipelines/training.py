"""training - two epochs of DistributedDataParallel over gloo, with data loader workers and a compiled loss.

The first epoch forks its workers, the second spawns them. A thread trains its own model meanwhile. Without torchrun the
job has one rank. This script runs torch.profiler if PROFILE names a file for its trace, or TABLE a file for its printed
table. DEVICE is the models' device, BACKEND that of torch.compile.
"""

import os
import threading
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import at_rest
import journal

ITEMS = 16
BATCH = 4
DEVICE = os.environ.get('DEVICE', 'cpu')


class Digits(Dataset):
    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        with record_function('augment'):
            noise = torch.Generator().manual_seed(index)
            return torch.randn(12, generator=noise), index % 3


def loss_of(scores, labels):
    return torch.nn.functional.cross_entropy(scores.float() * 0.5, labels) + scores.pow(2).mean() * 0.01


def train(model, loss_of, optimizer, loader):
    total = 0.0
    for inputs, labels in loader:
        with record_function('step'), journal.entry('step'):
            with record_function('forward'), journal.entry('forward'):
                loss = loss_of(model(inputs.to(DEVICE)), labels.to(DEVICE))
            with record_function('backward'), journal.entry('backward'):
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        total += loss.item()
    return total


def beside(results):
    """The other thread's own forward and backward passes."""
    model = torch.nn.Linear(6, 6, device=DEVICE)
    with record_function('beside'), journal.entry('beside'):
        for _ in range(3):
            (model(torch.ones(2, 6, device=DEVICE)) ** 2).sum().backward()
    results.append(model.weight.grad.double().sum().item())


def main():
    torch.set_num_threads(1)
    torch.manual_seed(11)
    if 'RANK' in os.environ:
        dist.init_process_group('gloo')
    else:
        dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
    network = torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.ReLU(), torch.nn.Linear(24, 3)).to(DEVICE)
    results = []
    compiled = torch.compile(loss_of, fullgraph=True, backend=os.environ.get('BACKEND', 'inductor'))
    thread = threading.Thread(target=beside, args=(results,), name='beside')
    path = journal.path_of('PROFILE')
    with torch.profiler.profile(record_shapes=True, profile_memory=True) if path else nullcontext() as profile:
        model = DistributedDataParallel(network)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for workers, start in ((2, 'fork'), (1, 'spawn')):
            sampler = DistributedSampler(Digits(), shuffle=False)
            loader = DataLoader(Digits(), batch_size=BATCH, sampler=sampler, num_workers=workers,
                                multiprocessing_context=start)
            losses.append(train(model, compiled, optimizer, loader))
        thread.start()
        thread.join()
    if path:
        profile.export_chrome_trace(path)
        journal.table(profile)
    counters = torch._dynamo.utils.counters
    total = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(total)
    weights = sum(p.double().abs().sum().item() for p in network.parameters())
    print(f'rank {dist.get_rank()} of {dist.get_world_size()} losses {[round(x, 6) for x in total.tolist()]} weights {weights:.6f}'
          f' beside {results[0]:.3f} breaks {dict(counters["graph_break"])} graphs {counters["stats"]["unique_graphs"]}')
    dist.destroy_process_group()
    at_rest.wait_for_threads()


if __name__ == '__main__':
    main()
