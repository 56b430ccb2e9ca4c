"""profiled - runs some torch code under torch.profiler: writes its trace, and key_averages of the same run.

`profiled.py WORK OPTIONS TRACE` takes the name of a function below and of torch.profiler's switches (shapes, memory,
stack, flops, schedule). With `python` the trace has Python functions as events; with `region` one range of that name
contains everything. stdout is JSON: {grouping: {"rows": [...], "tables": {sort key or "": text}}}. It is its own
program because torch's profiler leaves the earlier work out only in a fresh process.
"""

import contextlib
import json
import sys
import threading

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function, schedule


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))


def training():
    net, x = model(), torch.randn(8, 16)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step():
        with record_function('forward'):
            y = net(x)
            z = torch.cat([y, y])
            torch.stack([y.sum(), z.sum()])
        with record_function('backward'):
            (z.sum() + y.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        with record_function('a stage whose name is far longer than the column that torch has for it'):
            torch.einsum('ij,jk->ik', x, x.t())
    return [step] * 3


def threads():
    """Operators of three threads at once, and ranges that hold one or two ranges of their own name.

    Each thread allocates while the others are in a range, and frees when they have left it, so that its block does not cancel
    out there.
    """
    all_are_here = threading.Barrier(3)

    def work():
        for i in range(20):
            with record_function('same'), record_function('same'):
                all_are_here.wait()
                kept = torch.ones(64, i + 1).matmul(torch.ones(i + 1, 8))
                all_are_here.wait()
            with record_function('freeing'):
                all_are_here.wait()
                del kept
            with record_function('twice'):
                for _ in range(2):
                    with record_function('twice'):
                        torch.zeros(3).add_(1)

    def step():
        running = [threading.Thread(target=work) for _ in range(2)]
        for t in running:
            t.start()
        work()
        for t in running:
            t.join()
    return [step]


def loose():
    """Blocks freed, and a block allocated, while no operator runs."""
    kept = [torch.ones(1000, 1000) for _ in range(3)]

    def step():
        kept.append(torch.ones(500, 1024) + 1)
        kept.pop(0)
        torch.UntypedStorage(1 << 20)
    return [step] * 4


def convolutions():
    """Operators whose floating-point operations torch counts, and similar ones that it does not count."""
    F, r = torch.nn.functional, torch.randn

    def step():
        F.conv2d(r(2, 3, 8, 8), r(4, 3, 3, 3), padding=1)
        F.conv2d(r(2, 4, 9, 8), r(4, 2, 3, 3), groups=2, stride=(2, 1), dilation=(1, 2))
        F.conv2d(r(1, 3, 8, 8), r(4, 3, 3, 3), padding='same'), F.conv2d(r(3, 8, 8), r(4, 3, 3, 3))
        torch.nn.Conv1d(3, 4, 3)(r(1, 3, 8)), torch.nn.Linear(3, 4)(r(2, 3)).sum().backward()
        torch.bmm(r(2, 3, 4), r(2, 4, 5)), torch.baddbmm(r(2, 3, 5), r(2, 3, 4), r(2, 4, 5))
        torch.addmm(r(5), r(3, 4), r(4, 5)), r(3, 4) @ r(4), r(3) * 2, r(3, 1) * r(4), 5 + r(2, 3)
        torch.mul(torch.tensor(2.), 3), r(2, 0) + 1, torch.mm(r(0, 4), r(4, 2)), torch.mm(r(3, 0), r(0, 2))
        torch.bmm(r(0, 3, 4), r(0, 4, 5))
        s = torch.eye(3).to_sparse()
        torch.sparse.mm(s, r(3, 2)), s + s, s * 2
        n = torch.nested.nested_tensor([r(2, 3), r(4, 3)])
        n + n, n * 2
    return [step] * 2


WORK = {f.__name__: f for f in (training, threads, loose, convolutions)}
KEYS = ('cpu_time_total', 'self_cpu_time_total', 'cpu_time', 'count', 'cpu_memory_usage', 'self_cpu_memory_usage',
        'device_time_total', 'self_device_time_total', 'device_time', 'device_memory_usage', 'self_device_memory_usage', 'flops')


def rows_of(averages):
    def ns(us):
        return round(us * 1000)
    return [{'name': a.key, 'shapes': str(a.input_shapes), 'self_cpu': ns(a.self_cpu_time_total),
             'cpu': ns(a.cpu_time_total), 'mem': a.cpu_memory_usage, 'self_mem': a.self_cpu_memory_usage,
             'calls': a.count, 'flops': a.flops} for a in averages]


def main():
    work, options, path = sys.argv[1], sys.argv[2].split(','), sys.argv[3]
    if work != 'training':  # the optimizer imports inductor
        torch._lazy_modules.discard('_inductor')  # otherwise torch.profiler imports it, which takes two seconds
    steps = WORK[work]()
    steps[0]()
    with profile(activities=[ProfilerActivity.CPU], record_shapes='shapes' in options, profile_memory='memory' in options,
                 with_stack='stack' in options, with_flops='flops' in options,
                 schedule=schedule(wait=1, warmup=1, active=2, repeat=1) if 'schedule' in options else None,
                 experimental_config=_ExperimentalConfig(verbose='python' in options)) as profiler:
        with record_function('region') if 'region' in options else contextlib.nullcontext():
            for step in steps:
                step()
                profiler.step()
    profiler.export_chrome_trace(path)
    answer = {}
    for grouping, given in (('name', {}), ('name,shapes', {'group_by_input_shape': True}),
                            ('name,stack=4', {'group_by_stack_n': 4})):
        averages = profiler.key_averages(**given)
        answer[grouping] = {'rows': rows_of(averages),
                            'tables': {key: averages.table(sort_by=key or None, row_limit=-1) for key in ('', *KEYS)},
                            'short': averages.table(sort_by='count', row_limit=3)}
    json.dump(answer, sys.stdout)


if __name__ == '__main__':
    main()
