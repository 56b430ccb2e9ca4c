"""test_ops_random - the rows of `ops` of random PyTorch traces equal those of a slow Python program that shares no code with it.

Few distinct times make ties, events of no duration and events that only overlap common. A file without any point in its times
has microseconds that were cut: there a child may end 1 us after its parent, and ends with it.
"""

import json
import random
from collections import defaultdict

import pytest

TRACES = 60
HIDDEN = 'aten::is_leaf'
FAR = 1 << 32


# ---- random traces ----

def event(r, kind, span, ids):
    # The process has no thread 7, so calls without an operator stay on their thread.
    e = {'ph': 'X', 'cat': kind, 'pid': 7, 'tid': r.choice((8, 9)), 'ts': r.randrange(span), 'dur': r.choice((0, 0, 1, 2, r.randrange(span)))}
    if kind == '[memory]':
        return {'ph': 'i', 'cat': 'cpu_instant_event', 's': 't', 'name': kind, 'pid': 7, 'tid': 8, 'ts': e['ts'],
                'args': {'Device Type': r.choice((0, 1)), 'Device Id': 0, 'Addr': 1, 'Bytes': r.randrange(-99, 99)}}
    names = {'cpu_op': ('aten::a', 'aten::b', HIDDEN), 'user_annotation': ('stage', 'aten::a'), 'cuda_runtime': ('cudaLaunchKernel',),
             'python_function': ('a.py(1): f', 'aten::a'), 'kernel': ('k1', 'k2'), 'gpu_memcpy': ('Memcpy',)}
    number = r.randrange(1, ids)
    return {**e, 'name': r.choice(names[kind]), 'args': {'External id': number, 'correlation': number, 'device': 0, 'stream': 1}}


def events_of(seed):
    r = random.Random(seed)
    count, span = r.choice((5, 30, 120)), r.choice((6, 40, 1000))
    kinds = r.sample(('cpu_op', 'user_annotation', 'cuda_runtime', 'python_function', 'kernel', 'gpu_memcpy', '[memory]'), r.randint(3, 7))
    return [event(r, r.choice([*kinds, 'cpu_op']), span, count) for _ in range(count)]


# ---- slow answers ----

class Node:
    def __init__(self, e, order):
        self.name, self.kind, self.thread, self.order = e['name'], e['cat'], e['tid'], order
        self.start, self.end, self.id = e['ts'], e['ts'] + e['dur'], e['args']['External id']
        self.children, self.parent, self.work = [], None, 0

    def key(self):
        return self.start, -self.end, self.order

    def device(self):
        return self.work + sum(c.device() for c in self.children)


def in_trees(nodes, rounding):
    """Sets parents: the last event of the thread before a node that contains all of it. Folds only children of the same name."""
    for i, n in enumerate(nodes):
        around = [p for p in nodes[:i] if p.thread == n.thread and n.start < p.end and n.end <= p.end + rounding]
        n.parent = around[-1] if around else None
        if n.parent:
            n.end = min(n.end, n.parent.end)
            n.parent.children.append(n)
    gone = set()
    for n in nodes:
        while n not in gone and len(n.children) == 1 and n.children[0].name == n.name:
            only = n.children[0]
            gone.add(only)
            n.children, n.work = only.children, only.work
    return [n for n in nodes if n not in gone]


def host_events(events, rounding):
    def of(*kinds):
        return [e for e in events if e['cat'] in kinds]
    spans = of('cpu_op', 'cuda_runtime', 'python_function')
    nodes = [Node(e, i) for i, e in enumerate([*of('user_annotation'), *spans])]
    launcher = {n.id: n for n in nodes if n.kind == 'user_annotation'}
    launcher.update({n.id: n for n in nodes if n.kind == 'cpu_op'})
    for e in of('kernel', 'gpu_memcpy'):
        if e['args']['External id'] in launcher:
            launcher[e['args']['External id']].work += e['dur']
    everything = sorted((n for n in nodes if n.kind != 'cpu_op' or n.name != HIDDEN), key=Node.key)
    return everything, in_trees(everything, rounding)


def answer(events, rounding):
    """Rows as in the trace's first event: name, and the sums that `ops` prints."""
    rows, first = defaultdict(lambda: [0] * 9), {}

    def add(key, at, values):
        first[key] = min(first.get(key, at), at)
        rows[key] = [a + b for a, b in zip(rows[key], [*values, 1], strict=True)]

    blocks = [e for e in events if e['name'] == '[memory]']
    works = [e for e in events if e['cat'] in ('kernel', 'gpu_memcpy')]
    everything, nodes = host_events(events, rounding)

    def bytes_in(node, kind):
        return sum(b['args']['Bytes'] for b in blocks if node.start <= b['ts'] <= node.end and b['args']['Device Type'] == kind)

    def sums(n):
        return n.end - n.start, n.device(), bytes_in(n, 0), bytes_in(n, 1)

    for n in nodes:
        if n.kind == 'python_function':
            continue
        every, inner = sums(n), [sums(c) for c in n.children]
        own = [a - sum(c[i] for c in inner) for i, a in enumerate(every)]
        add((n.name, n.kind == 'user_annotation'), n.key(), [x for pair in zip(own, every, strict=True) for x in pair])
    for i, e in enumerate(works):
        add((e['name'], 'device'), (e['ts'], -e['ts'] - e['dur'], FAR + i), [0, 0, e['dur'], e['dur'], 0, 0, 0, 0])
    for b in blocks:
        if not any(n.start <= b['ts'] <= n.end for n in everything):
            size = [b['args']['Bytes'] if b['args']['Device Type'] == kind else 0 for kind in (0, 0, 1, 1)]
            add(('[memory]', 'none'), (b['ts'], -b['ts'], 2 * FAR), [0, 0, 0, 0, *size])
    known = [True, True, bool(works), bool(works)] + [bool(blocks)] * 4 + [True]
    return [[key[0], *(v if k else None for v, k in zip(rows[key], known, strict=True))] for key in sorted(rows, key=first.get)]


# ---- the comparison ----

COLUMNS = ('name', 'self_cpu_us', 'cpu_total_us', 'self_device_us', 'device_total_us', 'self_cpu_mem_bytes', 'cpu_mem_bytes',
           'self_device_mem_bytes', 'device_mem_bytes', 'calls')


@pytest.mark.parametrize('part', range(4))
def test_rows_of_random_traces(analyze, tmp_path, part):
    for seed in range(part * TRACES, (part + 1) * TRACES):
        events = events_of(seed)
        path = tmp_path / f'{seed}.json'
        whole = seed % 2
        written = events if whole else [{**e, 'ts': float(e['ts'])} for e in events]
        path.write_text(json.dumps({'schemaVersion': 1, 'traceEvents': written}))
        expected = answer(events, whole)
        rows = analyze('ops', path, rc=None)['rows'] if expected else []
        assert [[row[c] for c in COLUMNS] for row in rows] == expected, seed
