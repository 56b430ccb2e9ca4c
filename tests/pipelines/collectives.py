"""collectives - one rank of a job over gloo that calls every kind of collective and checks each result.

    python collectives.py JOURNAL [compiled]

It writes JOURNAL.RANK.json: for each stage its collectives in order, with the group, the ranks in it and the bytes as
`tfanalyze comm` defines them; and JOURNAL.RANK.kineto.json, torch.profiler's trace of the stage `profiled`. With
`compiled` it also trains a compiled model, which takes longer than all the rest.
"""

import json
import sys
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

import at_rest

LATE, DELAY, TURNS = 2, 0.1, 4
dist.init_process_group('gloo')
rank, size = dist.get_rank(), dist.get_world_size()
world = dist.group.WORLD
halves = [dist.new_group([r for r in range(size) if r % 2 == half], group_desc=f'half {half}') for half in (0, 1)]
half = halves[rank % 2]
journal, stage_name = {}, None


@contextmanager
def stage(name):
    global stage_name
    stage_name = name
    journal.setdefault(name, [])
    dist.barrier()  # outside of the stage
    with record_function(name):
        yield
    stage_name = None


def log(name, elements, type=torch.float32, group=None, ranks=None):
    """Notes a collective of this rank; `elements` counts the message as `comm` does, None where it has no bytes."""
    group = group or world
    journal[stage_name].append({'name': name, 'group': group.group_name, 'ranks': ranks or dist.get_process_group_ranks(group),
                                'bytes': elements and elements * type.itemsize})


def check(tensor, *expected):
    assert tensor.flatten().tolist() == list(expected), (stage_name, tensor, expected)


def full(value, count=6, type=torch.float32):
    return torch.full((count,), value, dtype=type)


def plain():
    total = sum(range(size))
    x = full(rank)
    dist.all_reduce(x)
    check(x, *[total] * 6), log('all_reduce', 6)
    x = full(rank, 3, torch.int64)
    work = dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True)
    log('all_reduce', 3, torch.int64)
    work.wait()
    check(x, *[size - 1] * 3)
    parts = [full(0, 5, torch.float64) for _ in range(size)]
    dist.all_gather(parts, full(rank, 5, torch.float64))
    check(torch.stack(parts)[:, 0], *range(size)), log('all_gather', 5 * size, torch.float64)
    x = full(0, 2 * size, torch.bfloat16)
    dist.all_gather_into_tensor(x, full(rank, 2, torch.bfloat16))
    check(x, *[r for r in range(size) for _ in range(2)]), log('all_gather', 2 * size, torch.bfloat16)
    x = full(0, 3)
    dist.reduce_scatter_tensor(x, torch.arange(3.0 * size))
    check(x, *[size * (3 * rank + i) for i in range(3)]), log('reduce_scatter', 3 * size)
    x = full(0, 7)
    dist.reduce_scatter(x, [full(r, 7) for r in range(size)])
    check(x, *[size * rank] * 7), log('reduce_scatter', 7 * size)
    x = full(rank, 11, torch.int32)
    dist.broadcast(x, 1)
    check(x, *[1] * 11), log('broadcast', 11, torch.int32)
    x = full(rank, 9)
    dist.reduce(x, 3)
    log('reduce', 9)
    assert rank != 3 or x.tolist() == [total] * 9
    parts = [full(-1, 8) for _ in range(size)] if rank == 2 else None
    dist.gather(full(rank, 8), parts, 2)
    log('gather', 8 * size)
    assert rank != 2 or [p[0].item() for p in parts] == list(range(size))
    x = full(-1, 10)
    dist.scatter(x, [full(r, 10) for r in range(size)] if rank == 0 else None, 0)
    check(x, *[rank] * 10), log('scatter', 10 * size)
    x = full(-1, 2 * size)
    dist.all_to_all_single(x, full(rank, 2 * size))
    check(x, *[r for r in range(size) for _ in range(2)]), log('all_to_all', 2 * size)
    dist.barrier()
    log('barrier', None)
    dist.monitored_barrier()
    log('barrier', None)


def subgroups():
    """Collectives of two groups are under way at once, in turns and on one tensor after the other."""
    works = []
    for turn in range(6):
        group, count = (world, 100 + turn) if turn % 2 else (half, 1000 + turn)
        x = full(rank, count)
        works.append((x, dist.all_reduce(x, group=group, async_op=True), dist.get_process_group_ranks(group)))
        log('all_reduce', count, group=group)
    for x, work, ranks in works:
        work.wait()
        check(x, *[sum(ranks)] * x.numel())
    x = full(1, 13)
    works = [dist.all_reduce(x, group=half, async_op=True) for _ in range(2)]
    for work in works:
        log('all_reduce', 13, group=half)
        work.wait()
    dist.barrier(half)
    log('barrier', None, group=half)


def messages():
    """Each rank sends to the next one; all receive from the one before, at the same time."""
    after, before = (rank + 1) % size, (rank - 1) % size
    for count in (20, 21):
        x = full(-1, count)
        sent, received = dist.isend(full(rank, count), after), dist.irecv(x, before)
        sent.wait(), received.wait()
        check(x, *[before] * count)
        log('send', count, ranks=sorted((rank, after)))
        log('recv', count, ranks=sorted((rank, before)))


def models(compiled):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    alone = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    alone.load_state_dict(model.state_dict())
    together = torch.nn.parallel.DistributedDataParallel(model, static_graph=not compiled)
    return alone, model, torch.compile(together, backend='eager') if compiled else together


def train(alone, model, together):
    """One step of all ranks equals a step of one process on all data."""
    data = torch.randn(size, 8, 16, generator=torch.Generator().manual_seed(1))
    together(data[rank]).square().mean().backward()
    alone(data.flatten(0, 1)).square().mean().backward()
    for ours, theirs in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-6)
        ours.grad = theirs.grad = None
    log('all_reduce', sum(p.numel() for p in model.parameters()))


def late(store):
    """One rank comes last to each all_reduce, by a known time at least."""
    for turn in range(TURNS):
        with stage('late'):
            x = full(rank)
            if rank == LATE:
                while store.add('posted', 0) < (size - 1) * (turn + 1):
                    time.sleep(0.01)
                time.sleep(DELAY)
            work = dist.all_reduce(x, async_op=True)
            if rank != LATE:
                store.add('posted', 1)
            log('all_reduce', 6)
            work.wait()


def profiled(path):
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p:
        for count in (30, 31):
            dist.all_reduce(full(rank, count))
            log('all_reduce', count)
            dist.broadcast(full(rank, count), 0)
            log('broadcast', count)
    p.export_chrome_trace(path)


for name in (plain, subgroups, messages):
    with stage(name.__name__):
        name()
late(dist.distributed_c10d._get_default_store())
for name, is_compiled in [('ddp', False), ('compiled', True)][:1 + ('compiled' in sys.argv)]:
    with stage('before'):
        of = models(is_compiled)
    for _ in range(2):
        with stage(name):
            train(*of)
with stage('profiled'):
    profiled(f'{sys.argv[1]}.{rank}.kineto.json')
with open(f'{sys.argv[1]}.{rank}.json', 'w') as f:
    json.dump(journal, f)
dist.barrier()
dist.destroy_process_group()
at_rest.wait_for_threads()
