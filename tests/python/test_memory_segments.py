"""test_memory_segments - snapshots of cache-dit contexts: segments add up to the memory that the allocator reserved.

Segments are reconstructed, or told by the calls underneath the allocator where these were recorded. An allocator that works like torch's writes the reports; its own segments are the expected answer. torch's functions
read the files.
"""

import json
import pickle
import random

import pytest

from test_report_memory import READ
from tfr import MONOTONIC, NESTED, REALTIME, STAGE, Writer, parse_table, rec

CACHE_DIT = 0x8000
MIB = 1 << 20


class Allocator:
    """A caching allocator of one device: first fit in segments of torch's sizes; a freed block stays cached."""

    def __init__(self, base, call=lambda name, address, size=None: None):
        self.segments, self.used, self.next, self.call = {}, {}, base, call

    def totals(self):
        return {'allocated': sum(self.used.values()), 'reserved': sum(self.segments.values())}

    def alloc(self, size):
        size = -(-size // 512) * 512
        small = size <= MIB
        for start, length in sorted(self.segments.items()):
            at = start
            for block in sorted(b for b in self.used if start <= b < start + length) + [start + length]:
                if block - at >= size and (length == 2 * MIB) == small:
                    self.used[at] = size
                    return at, size
                at = block + self.used.get(block, 0)
        length = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        start, self.next = self.next, self.next + length + 2 * MIB
        self.call('cudaMalloc', start, length)
        self.segments[start], self.used[start] = length, size
        return start, size

    def free(self, block):
        return block, -self.used.pop(block)

    def empty_cache(self):
        for s, n in list(self.segments.items()):
            if not any(s <= b < s + n for b in self.used):
                self.call('cudaFree', s)
                del self.segments[s]


class Trace:
    """A run directory with one cache-dit stage during which devices report."""

    def __init__(self, directory, **more):
        self.directory, self.now, self.open = directory, 1000, None
        self.w = Writer(rank=0, world=1, pid=4000, clock='monotonic', **more)
        self.records = [r for at in (0, 10 ** 9) for r in (
            rec('clock', clock=MONOTONIC, ticks=at, value=at), rec('clock', clock=REALTIME, ticks=at, value=10 ** 18 + at))]

    def begin(self):
        self.open, self.now = self.now, self.now + 1000
        self.records.append(rec('range_begin', name=self.w.string('s'), time=self.open, id=1, flags=NESTED | STAGE | CACHE_DIT))

    def report(self, device, address, size, totals, **more):
        self.now += 1000
        self.records.append(rec('memory', time=self.now, address=address, bytes=size, device=device,
                                stack=self.w.stack(('f', 'm.py', 7)), **totals, **more))

    def call(self, name, address, size=None, **more):
        """A call of CUDA that ends before the next report."""
        self.now += 1000
        more = {'address': address, **({} if size is None else {'bytes': size}), **more}
        kind = 'FREE' if name in ('cudaFree', 'cuMemUnmap', 'cuMemAddressFree') else 'ALLOC'
        names = ','.join(f'{n}:HEX' for n in more)
        library = 'cuda' if name.startswith('cuM') else 'cudart'
        self.records.append(rec('call', func=self.w.string(f'{library}\x1f{kind}\x1f{name}\x1f{names}'), time=self.now, duration=10,
                                args=list(more.values()), stack=self.w.stack(('g', 'm.py', 9)) if kind == 'ALLOC' else 0))

    def end(self):
        self.now += 1000
        self.records.append(rec('range_end', name=self.w.string('s'), time=self.now, duration=self.now - self.open, id=1,
                                flags=NESTED | STAGE | CACHE_DIT, thread=1))
        self.w.chunk(self.records, thread=1, tid=7)
        self.w.footer()
        self.w.save(self.directory / 'rank0.host.4000.tfr')


@pytest.fixture
def snapshot(analyze, tmp_path):
    """snapshot() -> the content of the file that `report` writes, and its path."""
    def snapshot():
        analyze('report', tmp_path)
        path, = tmp_path.glob('s-rank0-memory-*.pickle')
        return pickle.loads(path.read_bytes()), path
    return snapshot


def sums(data, device):
    """Reserved and used bytes by the segments; asserts that blocks fill each segment without a gap."""
    found = sorted((s for s in data['segments'] if s['device'] == device), key=lambda s: s['address'])
    end = 0
    for s in found:
        at = s['address']
        assert at >= end, 'segments overlap'
        for b in s['blocks']:
            assert b['address'] == at and b['size'] > 0 and b['state'] in ('active_allocated', 'inactive')
            at += b['size']
        assert at == s['address'] + s['total_size']
        end = at
        assert s['active_size'] == s['allocated_size'] == sum(b['size'] for b in s['blocks'] if b['state'] == 'active_allocated')
    return {'allocated': sum(s['active_size'] for s in found), 'reserved': sum(s['total_size'] for s in found)}


def follow(events, segments=()):
    """Segments after a device's trace, each with its end; asserts that every new block lies in one."""
    have = {s: s + n for s, n in segments}
    for e in events:
        start, end = e['addr'], e['addr'] + e['size']
        if e['action'] == 'segment_alloc':
            assert all(end <= s or start >= n for s, n in have.items())
            have[start] = end
        elif e['action'] == 'segment_free':
            assert have.pop(start) == end
        elif e['action'] == 'segment_map':
            have[next(s for s, n in have.items() if n == start)] = end
        elif e['action'] == 'segment_unmap':
            have[next(s for s, n in have.items() if n == end)] = start
        elif e['action'] == 'alloc':
            assert any(s <= start and end <= n for s, n in have.items())
    return {s: n - s for s, n in have.items()}


def play(trace, allocators, seed, steps, recorded=lambda step: True):
    """Allocates and frees random blocks; returns the last reported totals of each device."""
    last = {}
    r, live = random.Random(seed), [[] for _ in allocators]
    for step in range(steps):
        device = r.randrange(len(allocators))
        a = allocators[device]
        kind = r.random()
        if kind < 0.05:
            a.empty_cache()
        if kind < 0.6 or not live[device]:
            what = a.alloc(r.choice((r.randint(1, MIB), r.randint(MIB, 10 * MIB), r.randint(10 * MIB, 40 * MIB))))
            live[device].append(what[0])
        else:
            what = a.free(live[device].pop(r.randrange(len(live[device]))))
        if recorded(step):
            trace.report(device, *what, a.totals())
            last[device] = a.totals()
    return last


@pytest.mark.parametrize('seed', range(6))
def test_segments_add_up(tmp_path, snapshot, forked, seed):
    """Two devices, blocks of all sizes, growth and shrinking: sums and segments equal the allocator's own."""
    trace, allocators = Trace(tmp_path), [Allocator(0x7f0000000000), Allocator(0x7e0000000000)]
    trace.begin()
    last = play(trace, allocators, seed, 300)
    trace.end()
    data, path = snapshot()
    for device in last:
        assert sums(data, device) == last[device]
        events = data['device_traces'][device]
        left = follow(events)
        assert left == {s['address']: s['total_size'] for s in data['segments'] if s['device'] == device}
        assert {'segment_alloc', 'segment_free'} <= {e['action'] for e in events}
        assert [e['time_us'] for e in events] == sorted(e['time_us'] for e in events)
    if seed == 0:
        read = forked(['python', '-W', 'ignore', '-c', READ, path])
        assert read.rc == 0, read.err
        _, segments, text, _, plots = json.loads(read.out)
        assert 'cudaMalloc' in text and 'cudaFree' in text and 'MEM[' not in text and min(plots) > 1000


def test_growth_only_gives_the_allocators_segments(tmp_path, snapshot):
    """While no memory returns to the device, every segment has its true place and size."""
    trace, a = Trace(tmp_path), Allocator(0x7f0000000000)
    trace.begin()
    for size in (100, 3 * MIB, MIB, MIB, 30 * MIB + 5, 600, 9 * MIB, 9 * MIB):
        trace.report(0, *a.alloc(size), a.totals())
    trace.end()
    data, _ = snapshot()
    assert {s['address']: s['total_size'] for s in data['segments']} == a.segments
    assert sums(data, 0) == a.totals()
    assert [(e['action'], e['size']) for e in data['device_traces'][0]][:4] == [
        ('segment_alloc', 2 * MIB), ('alloc', 512), ('segment_alloc', 20 * MIB), ('alloc', 3 * MIB)]
    assert {s['segment_type'] for s in data['segments'] if s['total_size'] == 2 * MIB} == {'small'}


def test_no_memory(tmp_path, snapshot, forked):
    """An out-of-memory event stands at its place in its device's trace, with the requested and the free bytes."""
    trace, a = Trace(tmp_path), Allocator(0x7f0000000000)
    trace.records.append(rec('device', device=0, memory=80 * MIB))
    trace.begin()
    trace.report(0, *a.alloc(3 * MIB), a.totals())
    for device, size in ((0, 70 * MIB), (1, 5)):
        trace.now += 1000
        trace.records.append(rec('oom', time=trace.now, bytes=size, device=device, stack=trace.w.stack(('g', 'm.py', 8)),
                                 **(a.totals() if device == 0 else {})))
    trace.report(0, *a.alloc(100), a.totals())
    trace.end()
    data, path = snapshot()
    first, second = data['device_traces']
    assert [e['action'] for e in first] == ['segment_alloc', 'alloc', 'oom', 'segment_alloc', 'alloc']
    oom = first[2]
    assert (oom['size'], oom['device_free'], oom['frames'][0]['name']) == (70 * MIB, 60 * MIB, 'g') and 'addr' not in oom
    assert [(e['action'], e['size'], e['device_free']) for e in second] == [('oom', 5, 0)]
    read = forked(['python', '-W', 'ignore', '-c', READ, path])
    assert read.rc == 0, read.err
    assert 'raise OutOfMemoryError # 70.0MiB requested, 60.0MiB free in CUDA' in json.loads(read.out)[2]


@pytest.mark.parametrize('seed', range(6))
def test_memory_older_than_the_recording(tmp_path, snapshot, seed):
    """The sums are right in spite of blocks and segments older than the first report, and of missing reports."""
    trace, a = Trace(tmp_path), Allocator(0x7f0000000000)
    play(trace, [a], seed, 200, lambda step: step >= 50)
    trace.begin()
    last = play(trace, [a], seed + 100, 200)
    trace.end()
    data, _ = snapshot()
    assert sums(data, 0) == last[0]


@pytest.mark.parametrize('seed', range(3))
def test_recorded_calls_give_the_segments(tmp_path, snapshot, seed):
    """Every segment and every change of one is the allocator's own, also when it was emptied without a report."""
    trace = Trace(tmp_path)
    allocators = [Allocator(0x7f0000000000, trace.call), Allocator(0x7e0000000000, trace.call)]
    trace.begin()
    trace.call('cudaMalloc', 0x7d0000000000, 9 * MIB)  # the program's own: no block lies in it
    play(trace, allocators, seed, 300)
    for device, a in enumerate(allocators):
        trace.report(device, *a.alloc(5), a.totals())
        a.empty_cache()
    trace.end()
    data, _ = snapshot()
    for device, a in enumerate(allocators):
        assert {s['address']: s['total_size'] for s in data['segments'] if s['device'] == device} == a.segments
        assert sums(data, device) == a.totals()
        assert follow(data['device_traces'][device]) == a.segments
        assert {e['frames'][0]['name'] for e in data['device_traces'][device] if e['action'] == 'segment_alloc'} == {'g'}


@pytest.mark.parametrize('seed', range(6))
def test_some_calls_are_missing(tmp_path, snapshot, seed):
    """Calls underneath are recorded from some step on, or lost now and then: the sums are right all the same."""
    trace, r, begun = Trace(tmp_path), random.Random(seed), []
    a = Allocator(0x7f0000000000, lambda *call: begun and (seed % 2 or r.random() < .8) and trace.call(*call))
    play(trace, [a], seed, 200, lambda step: seed > 3 and step >= 50)
    begun.append(True)
    trace.begin()
    last = play(trace, [a], seed + 100, 200)
    trace.end()
    data, _ = snapshot()
    assert sums(data, 0) == last[0]


@pytest.mark.parametrize('has_column', [True, False])
def test_streams(tmp_path, snapshot, has_column):
    """Segments and events have the stream of their blocks, reconstructed ones too; older traces have none."""
    kinds = parse_table()
    if not has_column:
        kinds['memory'].fields = [f for f in kinds['memory'].fields if f.name != 'stream']
    trace = Trace(tmp_path, kinds=kinds)
    told, guessed = Allocator(0x7f0000000000, trace.call), Allocator(0x7e0000000000)
    trace.begin()
    for device, a, stream in ((0, told, 0x5550), (1, guessed, 0x7770)):
        block = a.alloc(3 * MIB)
        trace.report(device, *block, a.totals(), **({'stream': stream} if has_column else {}))
        trace.report(device, *a.free(block[0]), a.totals())
    trace.end()
    data, _ = snapshot()
    for device, stream in ((0, 0x5550), (1, 0x7770)):
        assert [(e['action'], e['stream']) for e in data['device_traces'][device]] == [
            (action, stream * has_column) for action in ('segment_alloc', 'alloc', 'free_requested', 'free_completed')]
        assert [(s['total_size'], s['stream']) for s in data['segments'] if s['device'] == device] == [(20 * MIB, stream * has_column)]


def test_mappings_are_segments(tmp_path, snapshot):
    """Mappings side by side are one segment if they lie in one reservation; what is unmapped in the middle splits it."""
    trace, base, two = Trace(tmp_path), 0x7f0000000000, 2 * MIB
    trace.begin()
    for reserved in (base, base + 8 * two):
        trace.call('cuMemAddressReserve', reserved, 8 * two)
    reports = 0
    def map_and_report(at, pieces):
        nonlocal reports
        for i in range(pieces):
            trace.call('cuMemMap', at + i * two, two, handle=at + i)
        reports += pieces
        trace.report(0, at, pieces * two, {'allocated': reports * two, 'reserved': reports * two})
    map_and_report(base + 5 * two, 3)
    map_and_report(base + 8 * two, 2)
    map_and_report(base + 1 * two, 4)
    trace.report(0, base + two, -4 * two, {'allocated': 5 * two, 'reserved': 9 * two})
    trace.call('cuMemUnmap', base + 2 * two, 2 * two)
    trace.end()
    data, _ = snapshot()
    assert [(s['address'], s['total_size'], s['is_expandable'], s['segment_type']) for s in sorted(data['segments'], key=lambda s: s['address'])] == [
        (base + two, two, True, 'small'), (base + 4 * two, 4 * two, True, 'small'), (base + 8 * two, 2 * two, True, 'small')]
    assert [(e['action'], e['addr'], e['size']) for e in data['device_traces'][0] if e['action'].startswith('segment')] == [
        ('segment_map', base + 5 * two, 3 * two), ('segment_map', base + 8 * two, 2 * two), ('segment_map', base + two, 4 * two),
        ('segment_unmap', base + 2 * two, 2 * two)]
    assert sums(data, 0) == {'allocated': 5 * two, 'reserved': 7 * two}


def test_the_last_block_of_a_segment_tells_its_stream(tmp_path, snapshot):
    """The last block counts, wherever it lies in the segment."""
    trace, base = Trace(tmp_path), 0x7f0000000000
    trace.begin()
    trace.call('cudaMalloc', base, 20 * MIB)
    for at, stream in ((10, 5), (0, 7)):
        trace.report(0, base + at * MIB, MIB, {'allocated': 2 * MIB, 'reserved': 20 * MIB}, stream=stream)
    trace.end()
    data, _ = snapshot()
    assert [(s['address'], s['total_size'], s['stream']) for s in data['segments']] == [(base, 20 * MIB, 7)]


def test_addresses_are_given_again(tmp_path, snapshot):
    """A new segment at the addresses of an allocator's old one is the program's own until a block lies in it."""
    trace, base = Trace(tmp_path), 0x7f0000000000
    trace.begin()
    trace.report(0, 2 * base, MIB, {'allocated': MIB, 'reserved': 2 * MIB})
    trace.call('cudaMalloc', 3 * base, MIB)  # the program's own
    trace.call('cudaMalloc', base, 20 * MIB)
    trace.report(0, base, MIB, {'allocated': 2 * MIB, 'reserved': 22 * MIB})
    trace.report(0, base, -MIB, {'allocated': MIB, 'reserved': 22 * MIB})
    trace.call('cudaFree', base)
    trace.report(0, base, MIB, {'allocated': 2 * MIB, 'reserved': 22 * MIB})  # the call that gave this segment is not recorded
    trace.report(0, base, -MIB, {'allocated': MIB, 'reserved': 2 * MIB})
    trace.call('cudaMalloc', base, 9 * MIB)
    trace.end()
    data, _ = snapshot()
    assert {s['address']: s['total_size'] for s in data['segments']} == {2 * base: 2 * MIB}


def test_a_mapping_without_a_block(tmp_path, snapshot):
    """A mapping belongs to the allocator that has blocks elsewhere in its reservation."""
    trace, base, two = Trace(tmp_path), 0x7f0000000000, 2 * MIB
    trace.begin()
    trace.call('cuMemAddressReserve', base, 8 * two)
    for i in (0, 3):
        trace.call('cuMemMap', base + i * two, two, handle=i)
    trace.report(0, base, two, {'allocated': two, 'reserved': 2 * two})
    trace.end()
    data, _ = snapshot()
    assert [(e['action'], e['addr'], e['size']) for e in data['device_traces'][0] if e['action'].startswith('segment')] == [
        ('segment_map', base, two), ('segment_map', base + 3 * two, two)]
    assert {s['address']: s['total_size'] for s in data['segments']} == {base: two, base + 3 * two: two}


class Pieces:
    """Pieces side by side in one reservation, whose unmaps are not recorded; `told` is what a falling total must tell."""

    def __init__(self, trace, sizes):
        self.size, self.guessed, self.used, self.told, at = {}, set(), {}, [], 0x7f0000000000
        trace.call('cuMemAddressReserve', at, sum(sizes))
        for i, size in enumerate(sizes):
            trace.call('cuMemMap', at, size, handle=i)
            self.size[at] = size
            at += size

    def shrink(self, total):
        while (excess := sum(self.size.values()) - total) > 0:
            empty = [at for at, size in self.size.items() if not any(start < at + size and at < end for start, end in self.used.items())]
            if not empty:
                return
            def cost(at):
                size = self.size[at]
                return at not in self.guessed, size != excess, size > excess, size if size > excess else -size, at
            at = min(empty, key=cost)
            if self.size[at] <= excess:
                self.told.append(('segment_free', at, self.size.pop(at)))
            else:
                self.size[at] -= excess
                self.guessed.add(at)
                self.told.append(('segment_unmap', at + self.size[at], excess))

    def choose(self, r):
        """A block in some of the pieces, from anywhere in the first one to anywhere in the last one."""
        starts = sorted(at for at in self.size if at not in self.guessed)
        if not starts:
            return None
        first = at = r.choice(starts)
        for _ in range(r.choice((0, 4, 100))):
            if at + self.size[at] in self.size and at + self.size[at] not in self.guessed:
                at += self.size[at]
        start, end = first + r.randrange(self.size[first] // 2), at + self.size[at] - r.randrange(self.size[at] // 2)
        return None if any(start < n and s < end for s, n in self.used.items()) else (start, end)


def test_a_block_leaves_many_pieces(tmp_path, snapshot):
    """A block in all pieces keeps every one of them; after it each fall of the total takes the piece of that size."""
    trace, sizes = Trace(tmp_path), [2 * MIB * (1 + 7 * i % 100) for i in range(100)]
    trace.begin()
    pieces = Pieces(trace, sizes)
    first, total = min(pieces.size), sum(sizes)
    trace.report(0, first, total, {'allocated': total, 'reserved': total})
    trace.report(0, 4096, -5, {'allocated': total, 'reserved': 0})
    trace.report(0, first, -total, {'allocated': 0, 'reserved': total})
    order = random.Random(1).sample(sorted(pieces.size), 100)
    for at in order:
        total -= pieces.size[at]
        trace.report(0, 4096, -5, {'allocated': 0, 'reserved': total})
    trace.end()
    data, _ = snapshot()
    assert [(e['addr'], e['size']) for e in data['device_traces'][0] if e['action'] == 'segment_free'] == [(at, pieces.size[at]) for at in order]
    assert not data['segments']


@pytest.mark.parametrize('same', [True, False])
@pytest.mark.parametrize('seed', range(6))
def test_unmaps_are_missing(tmp_path, snapshot, seed, same):
    """A total that falls takes pieces without a block, the best fitting first, while blocks in many pieces come and go."""
    trace, r = Trace(tmp_path), random.Random(seed)
    trace.begin()
    pieces = Pieces(trace, [2 * MIB if same else r.randint(1, 99) * MIB for _ in range(400)])
    for _ in range(250):
        block, less = pieces.choose(r), r.randint(1, 60) * MIB if pieces.used and r.random() < 0.3 else 0
        total = max(sum(pieces.size.values()) - less, 0)
        if block and r.random() < 0.6:
            pieces.used[block[0]] = block[1]
            trace.report(0, block[0], block[1] - block[0], {'allocated': 0, 'reserved': total})
        elif pieces.used:
            start = r.choice(list(pieces.used))
            pieces.shrink(total)
            trace.report(0, start, start - pieces.used.pop(start), {'allocated': 0, 'reserved': total})
        else:
            continue
        pieces.shrink(total)
    trace.end()
    data, _ = snapshot()
    events = data['device_traces'][0]
    assert [(e['action'], e['addr'], e['size']) for e in events if e['action'] in ('segment_free', 'segment_unmap')] == pieces.told
    assert len(pieces.told) > 20
    assert sum(s['total_size'] for s in data['segments']) == sum(pieces.size.values())


@pytest.mark.parametrize('calls', [
    [('cudaMalloc', 2 ** 64 - 4096, 8192), ('cudaFree', 2 ** 64 - 4096)], [('cudaMalloc', 4096, 2 ** 61), ('cudaMalloc', 4097, 1)],
    [('cudaMalloc', 4096, 8192), ('cudaFree', 4096), ('cudaFree', 4096)], [('cuMemMap', 4000, 5000), ('cuMemUnmap', 0, 2 ** 64 - 1)],
    [('cuMemAddressReserve', 0, 2 ** 60), ('cuMemMap', 4096, 100), ('cuMemMap', 4100, 3), ('cuMemMap', 4103, 2 ** 59)],
    [('cudaMalloc', 4098, 1), ('cudaMalloc', 0, 4097), ('cudaFree', 0)]])
def test_nonsense_underneath_ends_nothing(tmp_path, snapshot, calls):
    """Impossible calls between reports give a readable snapshot with blocks inside of their segments."""
    trace = Trace(tmp_path)
    trace.begin()
    trace.report(0, 4096, 10, {'allocated': 10, 'reserved': 20})
    for call in calls:
        trace.call(*call)
        trace.report(0, 4096, 10, {'allocated': 20, 'reserved': 2 ** 63})
        trace.report(0, 4100, 6, {'allocated': 20, 'reserved': 5})
    trace.call(*calls[0])
    trace.end()
    data, _ = snapshot()
    sums(data, 0)


@pytest.mark.parametrize('reports', [
    [(4096, 2 ** 63 - 1, 2 ** 64 - 1)], [(2 ** 64 - 4096, 8192, 1)], [(4096, 10, 0), (4100, 10, 5), (4096, 2 ** 62, 2 ** 63)],
    [(0, 1, 2 ** 64 - 1), (1, -2 ** 63, 0), (2, 3, 2 ** 64 - 1), (2, -3, 1)]])
def test_nonsense_ends_nothing(tmp_path, snapshot, reports):
    """Impossible sizes, addresses and totals still give a readable snapshot."""
    trace = Trace(tmp_path)
    trace.begin()
    for address, size, reserved in reports:
        trace.report(0, address, size, {'allocated': reserved, 'reserved': reserved})
    trace.end()
    data, _ = snapshot()
    sums(data, 0)
    assert any(e['action'] == 'alloc' for e in data['device_traces'][0])
