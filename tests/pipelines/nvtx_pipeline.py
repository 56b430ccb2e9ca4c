"""nvtx_pipeline.py - a PyTorch script for torchrun that logs its own stages, for comparison.

Each rank writes RANK.json into the given directory: a list of stages in the order of their ends, each with name, depth,
thread and four readings of CLOCK_REALTIME, just outside and just inside its beginning and its end. The script makes
stages in every way that Python offers: torch.cuda.nvtx push and pop, range(), start and end, and the package nvtx as
context manager, decorator, in a domain, start and end. Thread 1 is a second thread of the rank.
"""

import json
import os
import random
import sys
import threading
import time
from contextlib import contextmanager

import nvtx
import torch
import torch.distributed as dist

import at_rest

log = []
local = threading.local()


def now():
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


@contextmanager
def stage(name, enter, leave, domain=''):
    """One stage: the program calls `enter` and `leave` to mark it."""
    depths = local.__dict__.setdefault('depths', {})
    depth = depths.get(domain, 0)
    depths[domain] = depth + 1
    outside_begin = now()
    token = enter()
    inside_begin = now()
    yield
    inside_end = now()
    leave(token)
    outside_end = now()
    depths[domain] = depth
    log.append({'name': name, 'depth': depth, 'domain': domain, 'thread': local.number,
                'begin': [outside_begin, inside_begin], 'end': [inside_end, outside_end]})


def pushed(name):
    return stage(name, lambda: torch.cuda.nvtx.range_push(name), lambda _: torch.cuda.nvtx.range_pop())


def ranged(name):
    manager = torch.cuda.nvtx.range(name)
    return stage(name, manager.__enter__, lambda _: manager.__exit__(None, None, None))


def annotated(name, **options):
    manager = nvtx.annotate(name, **options)
    return stage(name, manager.__enter__, lambda _: manager.__exit__(None, None, None), options.get('domain', ''))


def work(rank):
    time.sleep(random.uniform(0, 0.002))
    return torch.rand(64, 64) @ torch.rand(64, 64) + rank


def second_thread(rank):
    local.number = 1
    for i in range(5 + rank):
        with pushed('beside'):
            with annotated('beside inner', color='blue'):
                work(rank)


def main(directory):
    dist.init_process_group('gloo')
    rank = dist.get_rank()
    local.number = 0
    random.seed(rank)
    thread = threading.Thread(target=second_thread, args=(rank,))
    with pushed('text_encode'):
        work(rank)
    thread.start()
    with ranged('denoise'):
        for step in range(3 + 2 * rank):
            with annotated('step', payload=step):
                noise = work(rank)
                with pushed('all_reduce'):
                    if step < 3:  # as often as rank 0
                        dist.all_reduce(noise)
            with annotated('in a domain', domain='pipeline'):
                with annotated('in it too', domain='pipeline', category='inner'):
                    work(rank)
    thread.join()
    with pushed('decode'):
        with pushed('decode'):
            work(rank)
    torch.cuda.nvtx.mark(f'done {rank}')
    nvtx.mark('done in domain', domain='pipeline')
    dist.destroy_process_group()
    with open(os.path.join(directory, f'{rank}.json'), 'w', encoding='utf-8') as f:
        json.dump(log, f)
    print(f'rank {rank}: {len(log)} stages')
    at_rest.wait_for_threads()


if __name__ == '__main__':
    main(sys.argv[1])
