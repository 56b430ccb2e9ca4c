"""torchwork - programs with torch that gpu-check runs plain and under the library; each prints one line of JSON.

    torchwork.py sessions DIRECTORY     five sessions of torch.profiler, and the same work between them
    torchwork.py graphs DIRECTORY       two CUDA graphs, replayed in turn in two stages, before, in and after a session
    torchwork.py pairs DIRECTORY        five profiles, each with the table that torch prints of it
    torchwork.py spawned|forked|segments|one_rank DIRECTORY   children, expandable segments, collectives of a single rank

The programs need only torch's own kernels, except the parts that GPU_CHECK_SIMULATED skips for lack of cuBLAS.
"""

import collections
import json
import os
import sys
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

SIMULATED = 'GPU_CHECK_SIMULATED' in os.environ
ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
SESSIONS, OPERATORS, PAUSE = 5, 50, 2.0
NODES, TURNS = 10, 50
WORK = ('kernel', 'gpu_memcpy', 'gpu_memset')


def events_of(recorder, path):
    recorder.export_chrome_trace(path)
    with open(path) as file:
        return [e for e in json.load(file)['traceEvents'] if e.get('ph') == 'X']


# ---- sessions ----

def round_of_work(x):
    """Launches OPERATORS kernels and one copy, and waits for them."""
    for _ in range(OPERATORS):
        x.add_(1)
    return x.cpu()


def looked_at(events):
    """Counts the events of a session, and the impossible ones: kernels before their launch or without a duration."""
    by_category = collections.Counter(e.get('cat') for e in events)
    launches = {e['args']['correlation']: e['ts'] for e in events
                if e.get('cat') in ('cuda_runtime', 'cuda_driver') and 'correlation' in e.get('args', {})}
    work = [e for e in events if e.get('cat') in WORK]
    early = [e for e in work if e['ts'] < launches.get(e['args'].get('correlation'), 0)]
    return {'counts': {c: by_category[c] for c in (*WORK, 'cuda_runtime', 'cuda_driver', 'cpu_op')},
            'calls': dict(collections.Counter(e['name'] for e in events if e.get('cat') in ('cuda_runtime', 'cuda_driver'))),
            'before_their_launch': len(early), 'without_launch': sum(e['args'].get('correlation') not in launches for e in work),
            'zero_times': sum(e['dur'] <= 0 for e in work)}


def sessions(directory):
    x, found, pause = torch.zeros(1000, device='cuda'), [], 0.2 if SIMULATED else PAUSE
    round_of_work(x)
    for number in range(SESSIONS):
        recorder, begin = profile(activities=ACTIVITIES), time.perf_counter()
        recorder.start()
        started = time.perf_counter()
        round_of_work(x)
        torch.cuda.synchronize()
        stopping = time.perf_counter()
        recorder.stop()
        stopped = time.perf_counter()
        found.append({**looked_at(events_of(recorder, f'{directory}/session.json')), 'start_seconds': started - begin,
                      'stop_seconds': stopped - stopping, 'work_seconds': stopping - started})
        round_of_work(x)
        time.sleep(pause)
    rounds = 1 + 2 * SESSIONS
    return {'sessions': found, 'kernels_launched': rounds * OPERATORS, 'copies': rounds}


# ---- graphs ----

def captured(function):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph


def graphs(directory):
    """Captures `add` in one graph and `mul` in another, each with NODES kernels of one operator."""
    x = torch.ones(1000, device='cuda')

    def many(operator):
        for _ in range(NODES):
            operator(1)
    with record_function('capture_add'):
        add = captured(lambda: many(x.add_))
    with record_function('capture_mul'):
        mul = captured(lambda: many(x.mul_))

    def turns():
        for _ in range(TURNS):
            with record_function('stage_add'):
                add.replay()
            with record_function('stage_mul'):
                mul.replay()
        torch.cuda.synchronize()
    turns()
    names = []
    for _ in range(2):
        with profile(activities=ACTIVITIES) as recorder:
            turns()
        kernels = [e['name'] for e in events_of(recorder, f'{directory}/graphs.json') if e.get('cat') == 'kernel']
        names.append(dict(collections.Counter(kernels)))
    turns()
    return {'replayed': {'stage_add': 4 * TURNS * NODES, 'stage_mul': 4 * TURNS * NODES}, 'profiled': names,
            'in_a_session': 2 * TURNS * NODES}


# ---- pairs: a trace and the table of it ----

def elementwise():
    a, b = torch.randn(1000, device='cuda'), torch.randn(50, 1000, device='cuda')
    for _ in range(20):
        b = torch.relu(a + b) * 0.5 - torch.tanh(b)
    b.sum(0).cpu()


def autograd():
    w = torch.ones(200, 100, device='cuda', requires_grad=True)
    x = torch.ones(100, device='cuda')
    for _ in range(5):
        ((w * x).relu() ** 2).sum().backward()
    w.grad.abs().max().cpu()


def replay():
    x = torch.zeros(4096, device='cuda')
    graph = captured(lambda: torch.tanh(x.add_(1)))
    for _ in range(10):
        graph.replay()
    torch.cuda.synchronize()


def copies():
    """Uses several streams, allocates and frees memory, copies pinned memory both ways, and runs a thread."""
    def beside():
        with torch.cuda.stream(torch.cuda.Stream()):
            for size in (1 << 10, 1 << 16, 1 << 20):
                kept = torch.empty(size, pin_memory=not SIMULATED).to('cuda', non_blocking=True)
                (kept + 1).to('cpu')
    thread = threading.Thread(target=beside)
    thread.start()
    beside()
    thread.join()
    torch.cuda.synchronize()


def transformer():
    """Trains a model with cuBLAS, attention and a convolution for two steps."""
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0).cuda()
    image = nn.Conv2d(3, 128, 8, stride=8).cuda()
    optimizer = torch.optim.AdamW([*layer.parameters(), *image.parameters()], lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        tokens = image(torch.ones(4, 3, 64, 64, device='cuda')).flatten(2).transpose(1, 2)
        with record_function('forward'):
            loss = F.mse_loss(layer(tokens), torch.zeros_like(tokens))
        loss.backward()
        optimizer.step()
    loss.cpu()


PAIRS = (elementwise, autograd, replay, copies, transformer)


def pairs(directory):
    told = {}
    for function in PAIRS:
        name = function.__name__
        if SIMULATED and function is transformer:
            told[name] = {'not_run': 'simulated: there is no cuBLAS'}
            continue
        function()
        with profile(activities=ACTIVITIES, record_shapes=True, profile_memory=True) as recorder:
            function()
        recorder.export_chrome_trace(f'{directory}/{name}.json')
        table = recorder.key_averages(group_by_input_shape=True).table(row_limit=-1)
        with open(f'{directory}/{name}.table.txt', 'w') as out:
            out.write(table)
        told[name] = {'lines': len(table.splitlines())}
    return told


# ---- processes, memory, collectives ----

def on_the_device(queue=None):
    """Returns the sum of a tensor on the device, or the name of the error, to the parent too."""
    try:
        told = float((torch.ones(1000, device='cuda') + 1).sum().cpu())
    except Exception as error:
        told = type(error).__name__
    if queue is not None:
        queue.put(told)
    return told


def child(method):
    context = torch.multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=on_the_device, args=(queue,))
    process.start()
    told = queue.get()
    process.join()
    return {'told': told, 'exit': process.exitcode}


def spawned(_):
    return {'parent': on_the_device(), 'child': child('spawn')}


def forked(_):
    """A child of fork can use the device if its parent only asked whether there is one."""
    return {'available': torch.cuda.is_available(), 'devices': torch.cuda.device_count(), 'child': child('fork'), 'parent': on_the_device()}


def segments(_):
    torch.cuda.memory._set_allocator_settings('expandable_segments:True')
    kept, sums = [], []
    for size in (1 << 10, 1 << 20, 1 << 24, 1 << 26):
        kept.append(torch.ones(size, device='cuda'))
        sums.append(float(kept[-1].sum().cpu()))
    del kept
    torch.cuda.empty_cache()
    return {'sums': sums, 'left': torch.cuda.memory_allocated()}


def one_rank(_):
    torch.distributed.init_process_group('nccl', init_method='tcp://127.0.0.1:29873', rank=0, world_size=1)
    x = torch.ones(1 << 20, device='cuda')
    for _ in range(10):
        torch.distributed.all_reduce(x)
    torch.cuda.synchronize()
    torch.distributed.destroy_process_group()
    return {'sum': float(x.sum().cpu())}


PROGRAMS = (sessions, graphs, pairs, spawned, forked, segments, one_rank)

if __name__ == '__main__':
    print(json.dumps({program.__name__: program for program in PROGRAMS}[sys.argv[1]](sys.argv[2])))
