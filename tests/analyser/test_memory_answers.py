"""test_memory_answers - `memory` on traces of torch's allocators: totals, peaks, leaks and refusals, counted independently.

The traces are made with tests/tfr.py and tests/kineto.py, and what the answers should be is counted from the same list
of events.
"""

import random
from collections import defaultdict

import pytest

import kineto
from optrace import OpTrace
from test_device_records import US, ticks
from tfr import MONOTONIC, NESTED, REALTIME, STAGE, Writer, rec

SIZES = ('blocks', 'bytes', 'outliving_blocks', 'outliving_bytes', 'leaked_blocks', 'leaked_bytes')


class Run:
    """Blocks of two devices in two threads, in nested stages; `events` is the truth in order of time."""

    def __init__(self, seed, steps=300):
        self.choose, self.now, self.events = random.Random(seed), 1000, []
        self.w = Writer(rank=3, world=4, pid=77, clock='monotonic')
        self.records = {1: [r for at in (0, 10 ** 9) for r in (
            rec('clock', clock=MONOTONIC, ticks=at, value=at), rec('clock', clock=REALTIME, ticks=at, value=10 ** 18 + at))], 2: []}
        self.open, self.live, self.total = {1: [], 2: []}, {}, {-1: 500, 0: 7000, 1: 0}  # older blocks: 500 and 7000 bytes
        self.reserved, self.ids = {-1: 0, 0: 8000, 1: 0}, 0
        for _ in range(steps):
            self.step()
        for thread in self.open:
            while self.open[thread]:
                self.pop(thread)

    def note(self, what, thread, **more):
        self.now += 10
        self.events.append(dict(what=what, time=self.now, thread=thread, stages=list(self.open[thread]), **more))

    def push(self, thread):
        self.now += 10
        self.ids += 1
        name = self.choose.choice('abc')
        self.open[thread].append((name, self.ids, self.now))
        self.records[thread].append(rec('range_begin', name=self.w.string(name), time=self.now, id=self.ids, flags=NESTED | STAGE))

    def pop(self, thread):
        name, number, begin = self.open[thread].pop()
        self.note('end', thread, ended=number, name=name, begin=begin)
        self.records[thread].append(rec('range_end', name=self.w.string(name), time=self.now, duration=self.now - begin,
                                        id=number, flags=NESTED | STAGE, thread=thread))

    def report(self, thread, device, address, size):
        self.total[device] += size
        if device >= 0 and self.total[device] > self.reserved[device]:
            self.reserved[device] = self.total[device] + 300
        line = self.choose.randrange(3)
        self.note('block', thread, device=device, address=address, size=size, line=line,
                  allocated=self.total[device], reserved=self.reserved[device])
        self.records[thread].append(rec('memory', allocator=self.w.string('c10'), time=self.now, address=address, bytes=size, device=device,
                                        allocated=self.total[device], reserved=self.reserved[device],
                                        stack=self.w.stack(('f', 'm.py', line), ('main', 'm.py', 9))))

    def step(self):
        thread, x = self.choose.choice([1, 1, 2]), self.choose.random()
        if x < .12 and len(self.open[thread]) < 3:
            self.push(thread)
        elif x < .22 and self.open[thread]:
            self.pop(thread)
        elif x < .26:
            device, size = self.choose.choice([-1, 0, 1]), self.choose.randrange(1 << 40)
            self.note('oom', thread, device=device, size=size, allocated=self.total[device], reserved=self.reserved[device])
            self.records[thread].append(rec('oom', allocator=self.w.string('c10'), time=self.now, bytes=size, device=device,
                                            allocated=self.total[device], reserved=self.reserved[device]))
        elif x < .6 or not self.live:
            device = self.choose.choice([-1, 0, 1])
            address = 4096 * self.choose.randrange(1, 200)  # the same ones on every device
            if (device, address) not in self.live:
                self.live[device, address] = self.choose.randrange(1, 1000)
                self.report(thread, device, address, self.live[device, address])
        else:
            device, address = self.choose.choice(sorted(self.live))
            self.report(thread, device, address, -self.live.pop((device, address)))

    def save(self, directory):
        for thread, records in self.records.items():
            self.w.chunk(records, thread=thread, tid=thread)
        self.w.footer()
        self.w.save(directory / 'rank3.host.77.tfr')
        return directory

    def stage_of(self, event):
        """Rule 1, else rule 3: the innermost stage of the thread, or of the only thread with an open one."""
        mine = event['stages']
        if not mine:
            other = 3 - event['thread']
            at = [(e['name'], e['ended'], e['begin']) for e in self.events
                  if e['what'] == 'end' and e['thread'] == other and e['begin'] <= event['time'] < e['time']]
            mine = sorted(at, key=lambda s: s[2])
        return mine[-1][:2] if mine else ('(none)', None)


@pytest.fixture(params=[1, 2, 3])
def made(request, tmp_path):
    run = Run(request.param)
    return run, run.save(tmp_path)


def blocks_of(run):
    return [e for e in run.events if e['what'] == 'block']


def freed_at(run, block):
    same = [e for e in blocks_of(run) if (e['device'], e['address']) == (block['device'], block['address']) and e['time'] > block['time']]
    return same[0]['time'] if same else None


def caller(stack):
    return int(stack[0].partition('(')[2].partition(')')[0])


def test_timeline_and_raw(made, analyze):
    run, directory = made
    blocks, raw = blocks_of(run), analyze('memory', '--layout', 'raw', directory)['rows']
    start = min(b['time'] for b in run.events + [{'time': e['begin']} for e in run.events if e['what'] == 'end'])
    assert [(r['time_us'], r['device'], r['bytes'], int(r['address'], 0), r['stage'], caller(r['stack'])) for r in raw] == \
        [(pytest.approx((b['time'] - start) / 1000), b['device'], b['size'], b['address'], run.stage_of(b)[0], b['line']) for b in blocks]
    assert {(r['rank'], r['pid'], r['allocator'], r['category']) for r in raw} == {(3, 77, 'c10', None)}
    rows = analyze('memory', directory)['rows']
    totals = [(b['allocated'], b['reserved'] if b['device'] >= 0 else None) for b in blocks]
    assert [(r['allocated_bytes'], r['reserved_bytes']) for r in rows] == totals == \
        [(r['allocated_bytes'], r['reserved_bytes']) for r in raw]
    of_one = analyze('memory', '--device', '1', directory)['rows']
    assert of_one == [r for r in rows if r['device'] == 1] != []
    text = analyze('memory', directory, format=None).out.splitlines()
    assert text[0].split()[:4] == ['rank', 'pid', 'time_us', 'device'] and len(text) == 1 + len(rows)


def test_peaks(made, analyze):
    """A stage's peak is the largest total of its time, with what was in use when it was opened."""
    run, directory = made
    expected = {}
    calls = [('(run)', 0, 1 << 62)] + [(e['name'], e['begin'], e['time']) for e in run.events if e['what'] == 'end']
    for device in (-1, 0, 1):
        mine = [b for b in blocks_of(run) if b['device'] == device]
        for name, begin, end in calls:
            inside = [b for b in mine if begin <= b['time'] <= end]
            if not inside:
                continue
            before = [b for b in mine if b['time'] < begin][-1:] or inside[:1]
            row = expected.setdefault((name, device), [0, 0, 0, 0, 0])
            row[0] += 1
            row[1] = max(row[1], *(b['allocated'] for b in before + inside))
            row[2] = max(row[2], *(b['reserved'] for b in before + inside))
            row[3] += sum(max(b['size'], 0) for b in inside)
            row[4] -= sum(min(b['size'], 0) for b in inside)
    rows = analyze('memory', '--layout', 'peaks', directory)['rows']
    assert {(r['stage'], r['device']): [r['calls'], r['peak_allocated_bytes'], r['peak_reserved_bytes'] or 0, r['allocated_bytes'],
                                        r['freed_bytes']] for r in rows} == expected
    of_a = analyze('memory', '--layout', 'peaks', '--stage', 'a', directory)
    assert {r['stage'] for r in of_a['rows']} == {'a'}
    assert of_a['totals']['peak_allocated_bytes'] == max(r['peak_allocated_bytes'] for r in of_a['rows']) > 0


def test_peaks_of_a_call_in_pieces(analyze, tmp_path):
    """A coroutine that waited twice is one call, whichever of its pieces allocate."""
    for number, pieces in enumerate(((0, 1, 2), (1, 2), (2,))):
        t = OpTrace()
        t.coroutine('co', 1000 * US, [(1000 * US, 1100 * US, 1), (1200 * US, 1300 * US, 1), (1400 * US, None, 1)], 1500 * US)
        for at in pieces:
            t.block((1050 + 200 * at) * US, 4096 * (at + 1), 100, 100 * (at + 1), device=0)
        path = t.save(tmp_path / f'rank2.h.{number}.tfr')
        rows = analyze('memory', '--layout', 'peaks', path)['rows']
        assert {r['stage']: (r['calls'], r['allocated_bytes']) for r in rows} == \
            {'(run)': (1, 100 * len(pieces)), 'co': (1, 100 * len(pieces))}


def test_peaks_of_a_step(analyze, tmp_path):
    """--step chooses calls of stages; the run is no part of a step, and a step that is not there matches nothing."""
    t = OpTrace()
    for step in range(3):
        t.stage(f'ProfilerStep#{step}', (1000 + 1000 * step) * US, (2000 + 1000 * step) * US)
        t.stage('s', (1100 + 1000 * step) * US, (1900 + 1000 * step) * US)
        t.block((1500 + 1000 * step) * US, 4096 * (step + 1), 100, 100 * (step + 1), device=0)
    path = t.save(tmp_path / 'rank2.h.1.tfr')

    def peaks(*options):
        return {r['stage']: (r['calls'], r['peak_allocated_bytes']) for r in analyze('memory', '--layout', 'peaks', *options, path)['rows']}
    assert peaks() == {'(run)': (1, 300), 'ProfilerStep*': (3, 300), 's': (3, 300)}
    assert peaks('--step', '1') == {'ProfilerStep*': (1, 200), 's': (1, 200)}
    for options in (['--step', '7'], ['--cycle', '7']):
        assert 'nothing matches' in analyze('memory', '--layout', 'peaks', *options, path, rc=1, format=None).err


def test_leaks(made, analyze):
    run, directory = made
    ends = {e['ended']: e['time'] for e in run.events if e['what'] == 'end'}
    expected = defaultdict(lambda: [0] * 6)
    for b in blocks_of(run):
        if b['size'] > 0:
            (stage, number), freed = run.stage_of(b), freed_at(run, b)
            outlives = number is not None and (freed is None or freed > ends[number])
            row = expected[stage, b['device'], b['line']]
            for at, is_so in enumerate((True, outlives, freed is None)):
                row[2 * at] += is_so
                row[2 * at + 1] += is_so * b['size']
    expected = {k: v for k, v in expected.items() if v[2] or v[4]}
    answer = analyze('memory', '--layout', 'leaks', directory)
    assert {(r['stage'], r['device'], caller(r['stack'])): [r[s] for s in SIZES] for r in answer['rows']} == expected
    assert answer['totals'] == {'rows': len(expected), **{s: sum(v[i] for v in expected.values()) for i, s in enumerate(SIZES) if i > 1}}


def test_equal_leaks_are_in_the_order_of_their_stacks(analyze, tmp_path):
    """The order of reading does not count, because threads read several inputs at once."""
    t = OpTrace()
    for i, frames in enumerate([('b', 'm.py', 2), ('a', 'm.py', 3), ()] + [('c', f'{x}.py', 1) for x in 'zxy']):
        t.block((1000 + i) * US, 4096 * (i + 1), 100, 100 * (i + 1), device=0, frames=(frames, ('main', 'm.py', 9)) if frames else ())
    stacks = [r['stack'] for r in analyze('memory', '--layout', 'leaks', t.save(tmp_path / 'rank2.h.1.tfr'))['rows']]
    assert stacks == [None] + [[f'{f}: {name}', 'm.py(9): main'] for f, name in (
        ('m.py(3)', 'a'), ('m.py(2)', 'b'), ('x.py(1)', 'c'), ('y.py(1)', 'c'), ('z.py(1)', 'c'))]


def test_refusals(made, analyze):
    """Holders of the last 16 refusals, and what is older than the recording."""
    run, directory = made
    ooms = [e for e in run.events if e['what'] == 'oom']
    answer = analyze('memory', '--layout', 'oom', directory)
    assert answer['totals'] == {'refused': len(ooms), 'shown': min(16, len(ooms))}
    rows = answer['rows']
    for oom in ooms[-16:]:
        held, live = defaultdict(lambda: [0, 0]), {}
        for b in blocks_of(run):
            if b['device'] == oom['device'] and b['time'] < oom['time']:
                live.pop(b['address'], None)
                if b['size'] > 0:
                    live[b['address']] = b
        for b in live.values():
            row = held[run.stage_of(b)[0], b['line']]
            row[0] += 1
            row[1] += b['size']
        older = oom['allocated'] - sum(v[1] for v in held.values())
        count = len(held) + (older > 0 or not held)
        mine, rows = rows[:count], rows[count:]
        assert {(r['device'], r['requested_bytes'], r['allocated_bytes'], r['requesting_stage']) for r in mine} == \
            {(oom['device'], oom['size'], oom['allocated'], run.stage_of(oom)[0])}
        assert {(r['stage'], caller(r['stack'])): [r['blocks'], r['bytes']] for r in mine if r['stage']} == held
        sizes = [r['bytes'] for r in mine if r['stage']]
        assert sizes == sorted(sizes, reverse=True) and [r['bytes'] for r in mine if not r['stage']] == [older] * (count - len(held))
    assert not rows


def test_refusals_by_stage(analyze, tmp_path):
    """--stage chooses holders. Blocks of other stages do not count as memory without a record, of which there are 30 bytes."""
    t = OpTrace()
    t.stage('a', 1000 * US, 2000 * US)
    t.stage('b', 2100 * US, 3000 * US)
    t.block(1100 * US, 4096, 100, 130, device=0)
    t.block(2200 * US, 8192, 200, 330, device=0)
    t.later_on(1, rec('oom', allocator=t.w.string('c10'), time=ticks(2500 * US), bytes=1000, device=0, allocated=330, reserved=400))
    path = t.save(tmp_path / 'rank2.h.1.tfr')
    for stages, expected in (((), [('b', 200), ('a', 100), (None, 30)]), ('a', [('a', 100)]), ('b', [('b', 200)]),
                             (['(none)'], [(None, 30)]), ('ab', [('b', 200), ('a', 100)])):
        words = [word for stage in stages for word in ('--stage', stage)]
        rows = analyze('memory', '--layout', 'oom', *words, path)['rows']
        assert [(r['stage'], r['bytes']) for r in rows] == expected and {r['requesting_stage'] for r in rows} == {'b'}
    assert 'nothing matches --stage x' in analyze('memory', '--layout', 'oom', '--stage', 'x', path, rc=1, format=None).err


def test_a_missing_free(analyze, tmp_path):
    """An address that is given out again was freed: the first block is no leak, and holds nothing at a refusal."""
    w, at = Writer(rank=0, world=1, pid=5, clock='monotonic'), 0
    records = [r for t in (0, 10 ** 9) for r in (rec('clock', clock=MONOTONIC, ticks=t, value=t), rec('clock', clock=REALTIME, ticks=t, value=t))]
    for kind, size in (('memory', 10), ('memory', 30), ('oom', 99)):
        at += 1000
        place = {'address': 64} if kind == 'memory' else {}
        records.append(rec(kind, allocator=w.string('c10'), time=at, bytes=size, allocated=30, reserved=50, device=0, **place))
    w.chunk(records, thread=1, tid=1)
    w.footer()
    w.save(tmp_path / 'rank0.host.5.tfr')
    leak, = analyze('memory', '--layout', 'leaks', tmp_path)['rows']
    assert [leak[s] for s in SIZES] == [2, 40, 0, 0, 1, 30] and leak['stage'] == '(run)' and leak['stack'] is None
    holder, = analyze('memory', '--layout', 'oom', tmp_path)['rows']
    assert (holder['blocks'], holder['bytes'], holder['pct']) == (1, 30, 100)


@pytest.mark.parametrize('refused', [0, 1])
def test_a_filter_on_refused_requests(analyze, tmp_path, refused):
    """A filter is blamed for an empty answer only if it left a refused request out."""
    w = Writer(rank=0, world=1, pid=5, clock='monotonic')
    records = [r for t in (0, 10 ** 9) for r in (rec('clock', clock=MONOTONIC, ticks=t, value=t), rec('clock', clock=REALTIME, ticks=t, value=t))]
    records.append(rec('memory', allocator=w.string('c10'), time=1000, bytes=10, allocated=10, reserved=50, device=0, address=64))
    records += [rec('oom', allocator=w.string('c10'), time=2000, bytes=99, allocated=10, reserved=50, device=0)] * refused
    w.chunk(records, thread=1, tid=1)
    w.footer()
    w.save(tmp_path / 'rank0.host.5.tfr')
    result = analyze('memory', '--layout', 'oom', '--from', '0.5', tmp_path, rc=refused, format='text')
    assert ('no request for memory was refused' in result.err, 'nothing matches --from 0.5' in result.err) == (not refused, bool(refused))
    assert result.err.count('\n') == 1


def test_totals_of_a_pytorch_trace(analyze, tmp_path):
    """[memory] events with their totals; the peaks of stages are those of their time. Without totals all is null."""
    t = kineto.Trace().stage('s', 0, 100).stage('t', 200, 100)
    events = [(10, 100, 100, 512), (20, 50, 150, 512), (50, -100, 50, 512), (250, 500, 550, 1024), (400, -500, 50, 1024)]
    for ts, size, allocated, reserved in events:
        t.add('cpu_instant_event', '[memory]', ts, ph='i', s='t', args={
            'Addr': ts, 'Bytes': size, 'Total Allocated': allocated, 'Total Reserved': reserved, 'Device Id': 0, 'Device Type': 1})
    t.write(tmp_path / 'a.json')
    rows = analyze('memory', tmp_path / 'a.json')['rows']
    assert [(r['time_us'], r['allocated_bytes'], r['reserved_bytes']) for r in rows] == [(ts, a, r) for ts, _, a, r in events]
    assert {(r['device'], r['allocator'], r['categories']) for r in rows} == {(0, None, None)}
    peaks = analyze('memory', '--layout', 'peaks', tmp_path / 'a.json')['rows']
    assert {r['stage']: (r['peak_allocated_bytes'], r['peak_reserved_bytes'], r['allocated_bytes'], r['freed_bytes']) for r in peaks} == {
        '(run)': (550, 1024, 650, 600), 's': (150, 512, 150, 100), 't': (550, 1024, 500, 0)}
    assert 'need traces of libtfinject.so' in analyze('memory', '--layout', 'leaks', tmp_path / 'a.json', rc=1, format=None).err
    t = kineto.Trace().stage('s', 0, 100)
    t.add('cpu_instant_event', '[memory]', 10, ph='i', s='t', args={'Addr': 1, 'Bytes': 7, 'Device Id': -1, 'Device Type': 0}).write(tmp_path / 'b.json')
    row, = analyze('memory', '--layout', 'raw', tmp_path / 'b.json')['rows']
    assert (row['bytes'], row['device'], row['allocated_bytes'], row['reserved_bytes']) == (7, -1, None, None)
