"""test_memory_flow - memory categories of random traces, against the rules of torch's _memory_profiler.py written with sets.

The random traces have operators in operators, backward nodes, in-place operators, gradients, parameters and state, and
blocks that come and go in and outside of operators. tests/python/test_memory_categories.py compares with torch itself.
"""

import random
from collections import defaultdict

import pytest

from test_page import data_of
from tfr import MONOTONIC, REALTIME, Writer, rec

CATEGORIES = ['parameter', 'optimizer_state', 'input', 'temporary', 'activation', 'gradient', 'autograd_detail', 'unknown']
PARAMETER, STATE, INPUT, TEMPORARY, ACTIVATION, GRADIENT, DETAIL = range(7)
FORWARD = ['aten::mm', 'aten::add_', 'aten::relu', 'aten::mul_.Tensor', 'aten::detach', 'mylib::f', 'MyFunction']
BACKWARD = ['MmBackward0', 'torch::autograd::AccumulateGrad', 'CatBackward0']
FRAME = 'autograd::engine::evaluate_function: MmBackward0'


class Run:
    """A random run; `log` has what happened: ('op', ...), ('use', ...), ('block', ...) in order of time."""

    def __init__(self, seed, steps=120):
        self.choose, self.now, self.log, self.live, self.total = random.Random(seed), 1000, [], {}, 0
        self.w = Writer(rank=0, pid=7, clock='monotonic', **{'env.TFI_TENSOR_ADDRESSES': '1'})
        self.records = {thread: [] for thread in (1, 2)}
        self.records[1] = [r for at in (0, 10 ** 9) for r in (
            rec('clock', clock=MONOTONIC, ticks=at, value=at), rec('clock', clock=REALTIME, ticks=at, value=10 ** 18 + at))]
        self.known = [4096 * i for i in range(1, 25)]
        for _ in range(steps):
            thread, x = self.choose.choice([1, 1, 1, 2]), self.choose.random()
            if x < .7:
                self.op(thread, 0)
            elif x < .85:
                self.block(thread)
            else:
                self.note(thread, self.choose.choice([3, 4, 5]), 'state', self.tick(), self.some(2))

    def tick(self):
        self.now += 10
        return self.now

    def some(self, most):
        return [self.choose.choice(self.known) for _ in range(self.choose.randrange(most + 1))]

    def note(self, thread, role, name, time, addresses):
        if addresses:
            self.log.append(('use', thread, role, name, time, addresses))
            self.records[thread].append(rec('tensors', name=self.w.string(name), time=time, role=role, blocks=[v for a in addresses for v in (a, 8)]))

    def block(self, thread):
        address = self.choose.choice(self.known)
        size = -self.live.pop(address) if address in self.live else self.choose.randrange(1, 1000)
        if size > 0:
            self.live[address] = size
        self.total += size
        self.log.append(('block', thread, address, size, self.tick()))
        self.records[thread].append(rec('memory', allocator=self.w.string('c10'), time=self.now, address=address, bytes=size, device=-1,
                                        allocated=10 ** 6 + self.total, reserved=0))

    def op(self, thread, depth):
        backward = depth < 2 and self.choose.random() < .3
        name = self.choose.choice(BACKWARD if backward else FORWARD + [FRAME])
        start, inputs = self.tick(), self.some(3)
        number = len(self.log)
        self.log.append(None)
        self.note(thread, 1, name, start, inputs)
        for _ in range(self.choose.randrange(4)):
            if depth < 3 and self.choose.random() < .5:
                self.op(thread, depth + 1)
            else:
                self.block(thread)
        self.log[number] = ('op', thread, name, start, self.tick(), backward)
        self.note(thread, 2, name, start, self.choose.sample(inputs, min(len(inputs), self.choose.randrange(2))))
        self.records[thread].append(rec('op', name=self.w.string(name), time=start, duration=self.now - start, sequence=-1, scope=int(backward)))

    def save(self, path):
        for thread, records in self.records.items():
            self.w.chunk(records, thread=thread, tid=thread)
        self.w.footer()
        self.w.save(path)
        return path


class Node:
    def __init__(self, start, backward=False, end=0, name='', thread=0):
        self.start, self.end, self.backward, self.name, self.thread, self.child = start, end, backward, name, thread, None
        self.used, self.unexplained, self.returned, self.allocated, self.freed = set(), set(), set(), set(), set()


def nodes_of(log):
    """Outermost operators: those with a namespace that are not autograd's frames, and backward nodes."""
    nodes, last = [], {}
    for _, thread, name, start, end, backward in sorted((e for e in log if e[0] == 'op'), key=lambda e: (e[3], -e[4])):
        if backward or ('::' in name and not name.startswith('autograd::engine::')):
            if thread in last and start < last[thread].end:
                last[thread].child = last[thread].child or (start, name)
            else:
                last[thread] = Node(start, backward, end, name, thread)
                nodes.append(last[thread])
    return nodes


class Truth:
    """Categories by the rules, as sets of (key, version)."""

    def __init__(self, log):
        self.nodes, self.current, self.tensors, self.blocks = nodes_of(log), {}, set(), []
        self.is_a, self.of_key, self.of_version, self.keys, self.version = defaultdict(set), {}, {}, 0, defaultdict(int)
        leaves = list(self.nodes)
        def leaf(thread, time):
            return next((n for n in leaves if n.thread == thread and n.start <= time <= n.end), None)
        order = {'use': 1, 'block': 2}
        for event in sorted((e for e in log if e[0] != 'op'), key=lambda e: (e[4], order[e[0]])):
            (self.block if event[0] == 'block' else self.use)(leaf(event[1], event[4]), *event[1:])
        self.nodes.sort(key=lambda n: n.start)
        self.moves = []
        self.wire()
        self.rules()

    def key(self, address):
        if address not in self.current:
            self.current[address] = self.keys
            self.keys += 1
        return self.current[address]

    def block(self, node, thread, address, size, time):
        key = self.key(address)
        if node is None:
            node = Node(time)
            self.nodes.append(node)
        (node.allocated if size > 0 else node.freed).add(key)
        self.blocks.append((time, key, size))
        if size < 0:
            del self.current[address]

    def use(self, node, thread, role, name, time, addresses):
        if role == 2:
            if node and name.split('.')[0].endswith('_'):
                node.returned |= {self.current[a] for a in addresses if a in self.current}
            return
        keys = [self.key(a) for a in addresses]
        self.tensors.update(keys)
        if role > 2:
            self.is_a[role].update(keys)
        elif node:
            itself = node.backward and (node.start, node.name) == (time, name)
            explained = '::' in name and not name.startswith('autograd::engine::')
            (node.used if explained and not itself else node.unexplained).update(keys)
            if node.backward and node.name == 'torch::autograd::AccumulateGrad' and node.child == (time, name) and name in ('aten::detach', 'aten::add_'):
                self.is_a[4].add(keys[0])

    def wire(self):
        for n in self.nodes:
            for part in (n.used, n.unexplained, n.returned, n.allocated, n.freed):
                part &= self.tensors
            n.inputs = (n.used | n.unexplained | n.freed) - n.allocated
            written = ((n.returned & n.used) | (n.unexplained - n.used)) - n.freed - n.allocated
            n.inputs = {(k, self.version[k]) for k in n.inputs}
            for k in written:
                self.version[k] += 1
                self.moves.append((n.start, k, self.version[k]))
            n.outputs = {(k, 0) for k in n.allocated - n.freed} | {(k, self.version[k]) for k in written}
            self.is_a[TEMPORARY, 'key'] |= n.allocated & n.freed

    def get(self, key, version):
        if key in self.of_key:
            return self.of_key[key]
        return TEMPORARY if key in self.is_a[TEMPORARY, 'key'] else self.of_version.get((key, version))

    def rules(self):
        for role, category in ((4, GRADIENT), (3, PARAMETER)):
            self.of_key.update(dict.fromkeys(self.is_a[role], category))
        depends, size = set(), -1
        while size != len(depends):
            size = len(depends)
            for n in self.nodes:
                ids = {k for k, v in n.inputs if self.get(k, v) in (GRADIENT, PARAMETER) or k in depends}
                depends |= ids | ({k for k, _ in n.outputs} if ids else set())
        produces = set()
        for n in reversed(self.nodes):
            if any(self.get(*i) in (GRADIENT, PARAMETER) or i in produces for i in n.inputs | n.outputs):
                produces |= n.inputs | n.outputs
        for n in self.nodes:
            produces -= n.outputs if n.backward else set()
        self.offer({i for i in produces if i[0] not in depends}, INPUT)
        every = set().union(*(n.inputs | n.outputs for n in self.nodes))
        forward, candidates, used = {i for i in every if self.get(*i) == INPUT}, set(), set()
        for n in self.nodes:
            if not n.backward and n.inputs & forward and not any(self.get(*i) == GRADIENT for i in n.inputs | n.outputs):
                forward |= n.outputs
                candidates |= n.inputs - forward
        for n in reversed(self.nodes):
            if any(self.get(*i) == GRADIENT or i in used for i in n.outputs):
                used |= n.inputs
        self.of_key.update({k: PARAMETER for k, _ in candidates & used if k in depends})
        for n in self.nodes:
            has = {self.get(*i) for i in n.inputs}
            if not n.backward and has & {INPUT, ACTIVATION} and has <= {INPUT, ACTIVATION, PARAMETER, TEMPORARY}:
                self.offer(n.outputs, ACTIVATION)
        self.of_key.update(dict.fromkeys(self.is_a[5], STATE))
        for n in self.nodes:
            if n.backward:
                self.offer({(k, v) for k, v in n.outputs if not v or self.get(k, v - 1) in (None, DETAIL)}, DETAIL)

    def offer(self, versions, category):
        for i in versions:
            self.of_version.setdefault(i, category)

    def name(self, key, version):
        category = self.get(key, version) if key in self.tensors else None
        return CATEGORIES[-1 if category is None else category]

    def rows(self):
        """Of each block: its category, and the bytes of the seven categories after it."""
        sizes, rows, moves = defaultdict(int), [], list(self.moves)
        began = {key: abs(size) for _, key, size in reversed(self.blocks)}
        alive = {key for i, (_, key, size) in enumerate(self.blocks) if size < 0 and key not in {k for _, k, s in self.blocks[:i] if s > 0}}
        for key in alive:
            sizes[self.name(key, 0)] += began[key]
        for time, key, size in self.blocks:
            while moves and moves[0][0] <= time:
                _, moved, version = moves.pop(0)
                sizes[self.name(moved, version - 1)] -= began.get(moved, 0)
                sizes[self.name(moved, version)] += began.get(moved, 0)
            category = self.name(key, self.version[key] if size < 0 else 0)
            sizes[category] += size
            rows.append((size, category, [sizes[c] for c in CATEGORIES[:7]]))
        return rows


@pytest.mark.parametrize('seed', range(12))
def test_random_runs(analyze, tmp_path, seed):
    run = Run(seed)
    path = run.save(tmp_path / 'x.tfr')
    expected = Truth(run.log).rows()
    raw, sums = analyze('memory', '--layout', 'raw', path)['rows'], analyze('memory', path)['rows']
    assert [(r['bytes'], r['category']) for r in raw] == [row[:2] for row in expected]
    assert [[s['categories'][c] for c in CATEGORIES[:7]] for s in sums] == [row[2] for row in expected]
    for s in sums:
        assert sum(s['categories'].values()) == s['allocated_bytes'] and list(s['categories']) == CATEGORIES
    page = analyze('memory', '--layout', 'html', path, format=None).out
    picture, = data_of(page)['runs'][0]['pictures']
    assert list(zip(*picture['bytes'])) == [tuple(s['categories'].values()) for s in sums]


def test_every_category_comes_up():
    found = set()
    for seed in range(12):
        found |= {row[1] for row in Truth(Run(seed).log).rows()}
    assert found == set(CATEGORIES)


def test_without_storages(analyze, tmp_path):
    """Without records of storages nothing has a category."""
    run = Run(3)
    run.records = {t: [r for r in records if r.kind != 'tensors'] for t, records in run.records.items()}
    run.save(tmp_path / 'a.tfr')
    assert {r['category'] for r in analyze('memory', '--layout', 'raw', tmp_path / 'a.tfr')['rows']} == {None}
    assert {r['categories'] for r in analyze('memory', tmp_path / 'a.tfr')['rows']} == {None}
