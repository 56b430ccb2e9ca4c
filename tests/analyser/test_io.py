"""test_io - calls on files: by function, file, process and worker, and the device idle for them, against sets of moments.

A made job lasts 3000 microseconds, and nothing in it happens between two of them. The expected times count moments: sets
of numbers, one for each microsecond.
"""

import gzip
import json
import random
import subprocess
from collections import Counter

import pytest

from tfr import DEVICE, MONOTONIC, NESTED, REALTIME, STAGE, Writer, rec

US, START, MOMENTS = 1000, 10 ** 9, 3000
NEXT = 'enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__'
MOVING = {'read': 'r', 'pread64': 'r', 'write': 'w', 'open': '', 'close': '', 'lseek': '', '__fxstat': ''}


class Process:
    """One process of the job. It keeps what it wrote: calls and ranges as tuples."""

    def __init__(self, rank, pid, worker=None):
        self.w, self.rank, self.pid, self.worker = Writer(rank=rank, world=2, pid=pid), rank, pid, worker
        self.records, self.of_thread, self.number = [], {1: [], 2: []}, 0
        self.calls, self.waits, self.batches, self.works, self.stages, self.ops = [], [], [], [], [], []
        for us in (0, MOMENTS):
            for clock in (MONOTONIC, REALTIME, DEVICE):
                self.records.append(rec('clock', clock=clock, ticks=us * US, value=START + us * US, error=10))
        for serial in (1, 2):
            self.records.append(rec('thread', serial=serial, tid=pid + serial, time=0, name=self.w.string(f't{serial}'),
                                    pthread=0x7f00000000 + serial * 0x10000))

    def io(self, function, path, start, end, thread=1, bytes=0, offset=-1, error=0):
        library = self.w.string(f'POSIX\x1fFILE\x1f{function}\x1f')
        result = -1 if error else bytes if MOVING[function] else 3
        self.of_thread[thread].append(rec('io', func=library, time=start * US, duration=(end - start) * US, result=result,
                                          bytes=bytes, offset=offset, path=self.w.string(path), error=error, fd=3))
        self.calls.append((function, path, start, end, thread, 0 if error else bytes if MOVING[function] else 0, error, offset))

    def span(self, name, start, end, thread=1, flags=NESTED | STAGE):
        self.number += 1
        self.of_thread[thread].append(rec('range_end', name=self.w.string(name), time=end * US, duration=(end - start) * US,
                                          id=self.number, flags=flags, thread=thread))

    def wait(self, start, end):
        self.span(NEXT, start, end)
        self.waits.append((start, end))

    def batch(self, start, end):
        self.span(f'DataLoader worker {self.worker}', start, end, flags=NESTED)
        self.batches.append((start, end))

    def numbered(self, name, start, end, number):
        """A range with a number, as the library records batches: it overlaps others, and its records follow each other."""
        self.number += 1
        id = self.number
        self.of_thread[1] += [rec('range_begin', name=self.w.string(name), time=end * US, id=id, payload=number, payload_type=2),
                              rec('range_end', name=self.w.string(name), time=end * US, duration=(end - start) * US, id=id, thread=1)]

    def stage(self, name, start, end):
        self.span(name, start, end)
        self.stages.append((name, start, end))

    def op(self, start, end):
        self.of_thread[1].append(rec('op', name=self.w.string('aten::mm'), time=start * US, duration=(end - start) * US, sequence=-1))
        self.ops.append((start, end))

    def kernel(self, launched, start, end):
        self.number += 1
        launch = self.w.string('cudart\x1fLAUNCH\x1fcudaLaunchKernel\x1f')
        self.records.append(rec('correlation', correlation=self.number, func=launch, thread=0x10000, time=launched * US, duration=US))
        self.records.append(rec('kernel', correlation=self.number, start=START + start * US, duration=(end - start) * US, stream=7,
                                device=0, name=self.w.string('kernel')))
        self.works.append((launched, start, end))

    def save(self, directory):
        self.w.chunk(self.records, thread=1, tid=self.pid + 1)
        for thread, records in self.of_thread.items():
            self.w.chunk(sorted(records, key=lambda r: r.values['time']), thread=thread, tid=self.pid + thread)
        self.w.footer()
        return self.w.save(directory / f'rank{self.rank}.{self.pid}.tfr')


def some_calls(rng, process, thread, first, last, files):
    at = first
    while True:
        at += rng.randrange(1, 12)
        end = at + rng.randrange(1, 30)
        if end > last:
            return
        function = rng.choice(list(MOVING))
        size = rng.choice((0, 1, 512, 4096, 4096, 4096, 70000))
        process.io(function, rng.choice(files), at, end, thread, size, rng.choice((-1, 0, 4096, 8192, 100)) if MOVING[function] else -1,
                   rng.choice((0, 0, 0, 5)))
        at = end


def job(seed, workers=3):
    """Rank 0 has a device, waits for batches and has workers; rank 1 has operators and reads by itself."""
    rng = random.Random(seed)
    files = [f'/data/{i}.bin' for i in range(6)]
    main = Process(0, 1000)
    team = [Process(0, 1010 + i, worker=i) for i in range(workers)]
    at = 5
    for number in range(14):
        end = at + rng.randrange(2, 60)
        main.wait(at, end)
        at = end + 1
        if rng.random() < 0.3:
            main.io('pread64', rng.choice(files), at, at + 9, bytes=4096, offset=0)
            at += 10
        start = at + rng.randrange(1, 20)
        main.kernel(at, start, start + rng.randrange(20, 90))
        at += rng.randrange(10, 110)
    some_calls(rng, main, 2, 30, 900, files)  # a thread that neither launches nor waits
    main.stage('train', 3, 800)
    for process in team:
        at = rng.randrange(0, 20)
        while at < MOMENTS - 200:
            end = at + rng.randrange(20, 160)
            process.batch(at, end)
            some_calls(rng, process, 1, at, end, files)
            at = end + rng.randrange(0, 50)
    alone = Process(1, 2000)
    some_calls(rng, alone, 1, 50, 2000, files)
    some_calls(rng, alone, 2, 60, 1500, files)
    for at in range(70, 2500, 100):
        alone.op(at, at + rng.randrange(10, 60))
    alone.stage('train', 40, 1200)
    return [main, *team, alone]


# ---- the truth ----

def moments(spans):
    return {m for start, end in spans for m in range(start, end)}


def idle_of(processes, rank, works=lambda process: process.works):
    spans = [(start, end) for p in processes if p.rank == rank for _, start, end in works(p)]
    if not spans:
        return None
    return set(range(min(s for s, _ in spans), max(e for _, e in spans))) - moments(spans)


def late(team, wait):
    """The batch that ended last within the wait: (process, its end); None if there is none."""
    ended = [(end, i) for i, p in enumerate(team) for _, end in p.batches if end <= wait[1]]
    end, i = max(ended, default=(-1, 0))
    return (team[i], end) if end > wait[0] else None


def windows(processes, rank, idle):
    """{process: moments of idle time that wait for its calls}, for processes that make batches."""
    team = [p for p in processes if p.rank == rank and p.batches]
    found = {id(p): set() for p in processes}
    for p in processes:
        for wait in p.waits if p.rank == rank else ():
            guilty = late(team, wait)
            if guilty:
                found[id(guilty[0])] |= set(range(wait[0], guilty[1])) & idle
    return found


def truth(processes, key, wanted=lambda process, call: True, works=lambda process: process.works):
    """{key: row} with the columns calls, bytes, sizes, total, unoverlapped, idle, moving."""
    rows = {}
    for rank in (0, 1):
        idle = idle_of(processes, rank, works)
        mine = [p for p in processes if p.rank == rank]
        if idle is None:
            compute = moments(span for p in mine if not p.batches for span in p.ops)
        else:
            compute = moments((s, e) for p in mine for _, s, e in works(p))
        waiting = windows(processes, rank, idle or set())
        ran = {}
        for p in mine:
            for call in p.calls:
                if not wanted(p, call):
                    continue
                function, path, start, end, thread, size, error, _ = call
                row = rows.setdefault(key(p, call), dict(calls=0, errors=0, bytes=0, sizes=[], total=0, moving=0, unoverlapped=0, idle=None))
                row['calls'] += 1
                row['errors'] += error > 0
                row['bytes'] += size
                row['sizes'] += [size] if size else []
                row['total'] += end - start
                row['moving'] += end - start if MOVING[function] else 0
                ran.setdefault(key(p, call), set()).update(range(start, end))
                if idle is not None:
                    waited = p is processes[0] and thread == 1
                    row.setdefault('moments', set()).update(set(range(start, end)) & (idle if waited else waiting[id(p)]))
        for name, at in ran.items():
            rows[name]['unoverlapped'] += len(at - compute)
            if idle is not None:
                rows[name]['idle'] = len(rows[name]['moments'])
    return rows


def quartile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    below = int(at)
    above = min(below + 1, len(values) - 1)
    return values[below] + (at - below) * (values[above] - values[below])


def check(row, want):
    assert (row['calls'], row['errors'], row['bytes']) == (want['calls'], want['errors'], want['bytes'])
    assert row['total_us'] == want['total']
    assert row['unoverlapped_us'] == want['unoverlapped']
    assert row['idle_us'] == want['idle']
    if want['sizes']:
        assert (row['size_min'], row['size_max']) == (min(want['sizes']), max(want['sizes']))
        for name, share in (('size_q1', .25), ('size_median', .5), ('size_q3', .75)):
            assert abs(row[name] - quartile(want['sizes'], share)) <= 0.5
        assert row['bandwidth_mbs'] == pytest.approx(want['bytes'] / want['moving'])
    else:
        assert (row['size_min'], row['size_median'], row['size_max'], row['bandwidth_mbs']) == (None, None, None, None)


def ran(tfanalyze, *words):
    return subprocess.run([tfanalyze, 'io', *map(str, words)], capture_output=True, text=True)


@pytest.fixture
def answer(tfanalyze):
    def ask(*words):
        run = ran(tfanalyze, '--format', 'json', *words)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)
    return ask


KEYS = {'function': (lambda p, call: call[0], lambda row: row['function']),
        'file': (lambda p, call: call[1], lambda row: row['path']),
        'process': (lambda p, call: p.pid, lambda row: row['pid']),
        'worker': (lambda p, call: (p.rank, p.worker, p.pid), lambda row: (row['rank'], row['worker'], row['pid']))}


@pytest.mark.parametrize('group', KEYS)
@pytest.mark.parametrize('seed', range(4))
def test_rows(tmp_path, answer, seed, group):
    """Each grouping has the calls, sizes, times, unoverlapped times and idle times of the sets of moments."""
    processes = job(seed)
    for p in processes:
        p.save(tmp_path)
    key, of_row = KEYS[group]
    want = truth(processes, key)
    found = answer(tmp_path, '--group-by', group)
    assert {of_row(row) for row in found['rows']} == set(want) and len(found['rows']) == len(want)
    for row in found['rows']:
        check(row, want[of_row(row)])
    assert any(row['idle_us'] for row in found['rows'])
    order = [(-1 if r['idle_us'] is None else r['idle_us'], r['total_us']) for r in found['rows']]
    assert order == sorted(order, reverse=True)


@pytest.mark.parametrize('seed', range(3))
def test_stage(tmp_path, answer, seed):
    """With --stage the calls of the stage's own thread count, and those of a worker while the stage is open; idle time is that of the
    stage's device work."""
    processes = job(seed)
    for p in processes:
        p.save(tmp_path)

    open_in = {0: (3, 800), 1: (40, 1200)}

    def wanted(p, call):
        return open_in[p.rank][0] <= call[2] < open_in[p.rank][1]

    def works(p):
        return [w for w in p.works if 3 <= w[0] < 800]
    main = processes[0]
    main.waits = [w for w in main.waits if w[0] < 800]
    want = truth(processes, KEYS['file'][0], wanted, works)
    found = answer(tmp_path, '--group-by', 'file', '--stage', 'train')
    assert {row['path'] for row in found['rows']} == set(want)
    for row in found['rows']:
        check(row, want[row['path']])


def test_first_is_the_slow_file(tmp_path, answer):
    """A file whose reads make batches late comes first, though another file takes longer without delaying anything."""
    main, slow, fast = Process(0, 1), Process(0, 2, worker=0), Process(0, 3, worker=1)
    for step in range(5):
        at = 500 * step
        main.wait(at, at + 300)
        main.kernel(at + 301, at + 305, at + 480)
        slow.batch(at, at + 299)
        slow.io('read', '/data/slow', at + 10, at + 290, bytes=100)
        fast.batch(at, at + 290)
        fast.io('read', '/data/busy', at, at + 290, bytes=4096)
    for p in (main, slow, fast):
        p.save(tmp_path)
    found = answer(tmp_path, '--group-by', 'file')
    assert [row['path'] for row in found['rows']] == ['/data/slow', '/data/busy']
    assert [row['idle_us'] for row in found['rows']] == [4 * 280, 0]
    assert found['totals']['idle_us'] == 4 * 280
    workers = answer(tmp_path, '--group-by', 'worker')['rows']
    assert [(row['rank'], row['worker'], row['idle_us']) for row in workers] == [(0, 0, 4 * 280), (0, 1, 0)]


class Loader:
    """Epochs of a loader whose workers finish in any order; a batch is handed over in the order of its number. Keeps the truth of each
    batch: (pid, number, requested, begun, made, asked, handed over)."""

    def __init__(self, seed, epochs=2, workers=3, batches=12):
        rng, self.batches, self.workers = random.Random(seed), [], [Process(0, 1010 + i, worker=i) for i in range(workers)]
        self.main = main = Process(0, 1000)
        at = 5
        for _ in range(epochs):
            free = [at] * workers
            asked, made = at, []
            for number in range(batches):
                team = number % workers
                requested = at if number < 2 * workers else made[number - 2 * workers][3] - 1
                begun = max(free[team], requested) + rng.randrange(0, 3)
                end = begun + rng.randrange(15, 40 if rng.random() < 0.7 else 120)
                free[team] = end + 1
                start = asked + rng.randrange(0, 9)
                over = max(start, end) + rng.randrange(1, 4)
                made.append((self.workers[team], number, requested, over, begun, end, start))
                main.wait(start, over)
                main.kernel(over, over + 1, over + 1 + rng.randrange(1, 12))
                asked = over + 2
            for worker, number, requested, over, begun, end, start in made:
                worker.numbered(f'DataLoader worker {worker.worker}', begun, end, number)
                worker.batches.append((begun, end))
                main.numbered(f'DataLoader batch of worker {worker.worker} pid {worker.pid}', requested, over, number)
                some_calls(rng, worker, 1, begun, end, [f'/data/{i}' for i in range(4)])
                self.batches.append((worker, number, requested, begun, end, start, over))
            at = asked + 20
        assert at < MOMENTS


def reads_of(worker, begun, end):
    """{path: [calls, bytes, total]} of the reads that began in a batch, and the same of all calls together."""
    reads, all_calls = {}, [0, 0, 0]
    for function, path, start, stop, _, size, _, _ in worker.calls:
        for sums in ([all_calls] + ([reads.setdefault(path, [0, 0, 0])] if MOVING[function] == 'r' else []) if begun <= start < end else []):
            sums[0] += 1
            sums[1] += size
            sums[2] += stop - start
    return reads, all_calls


@pytest.mark.parametrize('filters', [(), ('--from', '0')], ids=['one by one', 'together'])
@pytest.mark.parametrize('seed', range(4))
def test_late_batches(tmp_path, answer, seed, filters):
    """A batch that was made after its wait began is late. Its times, its idle time and its reads equal those counted moment by
    moment, also if another worker finished later, and if numbers repeat in the next epoch."""
    loader = Loader(seed)
    processes = [loader.main, *loader.workers]
    for p in processes:
        p.save(tmp_path)
    idle = idle_of(processes, 0)
    want = {}
    for worker, number, requested, begun, end, start, over in loader.batches:
        if end <= start:
            continue
        calls = moments((c[2], c[3]) for c in worker.calls)
        want[worker.pid, number, start] = (requested, begun, end, over - start, len(calls & idle & moments([(start, end)])),
                                           *reads_of(worker, begun, end))
    found = answer(tmp_path, '--layout', 'batches', *filters)
    rows = {(row['pid'], row['batch'], row['asked_us']): row for row in found['rows']}
    assert set(rows) == set(want) and len(want) > 5 and any(row['idle_us'] for row in found['rows'])
    for key, (requested, begun, end, wait, waited, reads, sums) in want.items():
        row = rows[key]
        assert (row['rank'], row['worker']) == (0, row['pid'] - 1010)
        assert (row['requested_us'], row['begun_us'], row['arrived_us'], row['wait_us'], row['idle_us']) == (
            requested, begun, end, wait, waited)
        assert [row['calls'], row['bytes'], row['total_us']] == sums and row['files'] == len(reads)
        assert {read['path']: [read['calls'], read['bytes'], read['total_us']] for read in row['reads']} == reads
        times = [read['total_us'] for read in row['reads']]
        assert times == sorted(times, reverse=True)
    order = [(row['idle_us'], row['wait_us']) for row in found['rows']]
    assert order == sorted(order, reverse=True)
    totals = found['totals']
    assert (totals['waits'], totals['late_batches']) == (len(loader.batches), len(want))
    assert totals['wait_us'] == sum(w[3] for w in want.values())
    workers = [row for row in answer(tmp_path, '--group-by', 'worker', *filters)['rows'] if row['worker'] is not None]
    assert totals['idle_us'] == sum(w[4] for w in want.values()) == sum(row['idle_us'] for row in workers)
    few = answer(tmp_path, '--layout', 'batches', '--top', '2', *filters)
    assert few['rows'] == found['rows'][:2] and few['totals'] == totals


def test_late_batches_without_a_device_or_numbers(tmp_path, answer, tfanalyze):
    """Without device work the idle time is unknown, without records of the hand-over the number and the request."""
    main, worker = Process(0, 1), Process(0, 2, worker=0)
    main.wait(100, 300)
    main.wait(400, 500)
    worker.batch(50, 280)
    worker.batch(290, 399)
    for i in range(20):
        worker.io('read', f'/d/{i:02}', 60 + 10 * i, 61 + 10 * i + i // 4, bytes=100 + i)
    for p in (main, worker):
        p.save(tmp_path)
    found = answer(tmp_path, '--layout', 'batches')
    [row] = found['rows']
    assert (row['batch'], row['requested_us'], row['idle_us'], found['totals']['idle_us']) == (None, None, None, None)
    assert (row['begun_us'], row['arrived_us'], row['asked_us'], row['wait_us']) == (50, 280, 100, 200)
    assert (row['calls'], row['files'], found['totals']['late_batches']) == (20, 20, 1)
    longest = sorted(range(20), key=lambda i: (-(1 + i // 4), i))[:16]
    assert [(read['path'], read['bytes']) for read in row['reads']] == [(f'/d/{i:02}', 100 + i) for i in longest]
    lines = ran(tfanalyze, tmp_path, '--layout', 'batches', '--format', 'csv').stdout.splitlines()
    assert lines[1].startswith('0,0,2,,,50.000,280.000,100.000,200.000,,20,2190,') and lines[1].count('(path=') == 16
    text = ran(tfanalyze, tmp_path, '--layout', 'batches').stdout
    assert '/d/16' in text and '/d/17' not in text and 'late_batches 1' in text


def test_late_batches_of_the_process_itself(tmp_path, answer):
    """A loader without workers makes its batches in the wait; the reads of other threads are not theirs."""
    main = Process(0, 1)
    for number, at in enumerate((0, 500)):
        main.wait(at, at + 300)
        main.numbered('DataLoader batch', at + 10, at + 290, number)
        main.io('read', f'/d/{number}', at + 20, at + 270, bytes=100)
        main.io('read', '/d/other', at + 30, at + 280, thread=2, bytes=7)
        main.kernel(at + 301, at + 305, at + 480)
    main.save(tmp_path)
    found = answer(tmp_path, '--layout', 'batches')
    assert [(r['worker'], r['pid'], r['batch'], r['begun_us'], r['arrived_us'], r['asked_us'], r['wait_us'], r['idle_us'])
            for r in found['rows']] == [(None, 1, 1, 510, 790, 500, 300, 250), (None, 1, 0, 10, 290, 0, 300, 0)]
    assert [[read['path'] for read in row['reads']] for row in found['rows']] == [['/d/1'], ['/d/0']]


def test_late_batches_keep_the_longest(tmp_path, answer):
    """Of more batches than are kept, those with the longest calls have their reads; the others have times only."""
    main, worker = Process(0, 1), Process(0, 2, worker=0)
    for k in range(1100):
        main.wait(20 * k, 20 * k + 15)
        worker.batch(20 * k + 1, 20 * k + 14)
        worker.io('read', '/d/file', 20 * k + 2, 20 * k + (3 if k % 11 == 0 else 8), bytes=10)
    for p in (main, worker):
        p.save(tmp_path)
    found = answer(tmp_path, '--layout', 'batches', '--top', '1000')
    assert len(found['rows']) == 1000 and found['totals']['late_batches'] == 1100
    unknown = [row for row in found['rows'] if row['reads'] is None]
    assert 0 < len(unknown) <= 76 and all(row['asked_us'] % 220 == 0 and row['calls'] is None for row in unknown)
    assert all(row['reads'][0]['path'] == '/d/file' for row in found['rows'] if row['reads'] is not None)
    everything = answer(tmp_path, '--layout', 'batches', '--top', '1200')['rows']
    assert len(everything) == 1100 and not any(row['reads'] is None for row in everything)


def test_without_batches_all_others_count(tmp_path, answer):
    """Without records of batches the calls of all other processes count in a wait, and those of the waiting process do not."""
    main, other = Process(0, 1), Process(0, 2)
    for at in (0, 500):
        main.wait(at, at + 300)
        main.kernel(at + 301, at + 305, at + 480)
        main.io('read', '/data/own', at + 100, at + 200, thread=2, bytes=1)
        other.io('read', '/data/theirs', at + 10, at + 290, bytes=100)
    for p in (main, other):
        p.save(tmp_path)
    found = {row['path']: row['idle_us'] for row in answer(tmp_path, '--group-by', 'file')['rows']}
    assert found == {'/data/theirs': 280, '/data/own': 0}


@pytest.mark.parametrize('seed', range(3))
def test_summary(tmp_path, answer, seed):
    """The summary of each rank is made of unions of moments."""
    processes = job(seed)
    for p in processes:
        p.save(tmp_path)
    found = answer(tmp_path, '--layout', 'summary')
    assert [row['rank'] for row in found['rows']] == [0, 1]
    for row in found['rows']:
        mine = [p for p in processes if p.rank == row['rank']]
        io = moments((c[2], c[3]) for p in mine for c in p.calls)
        asked = moments(w for p in mine for w in p.waits)
        compute = moments((s, e) for p in mine for _, s, e in p.works) or moments(o for p in mine for o in p.ops)
        assert (row['io_us'], row['app_io_us'], row['compute_us']) == (len(io), len(asked), len(compute))
        assert row['unoverlapped_io_us'] == len(io - compute)
        assert row['unoverlapped_app_io_us'] == len(asked - compute)
        assert row['unoverlapped_compute_us'] == len(compute - io - asked)
        assert row['files'] == len({c[1] for p in mine for c in p.calls})
        assert (row['processes'], row['calls']) == (len(mine), sum(len(p.calls) for p in mine))
        assert row['bytes'] == sum(c[5] for p in mine for c in p.calls)
    by_process = answer(tmp_path, '--layout', 'summary', '--group-by', 'process')['rows']
    assert {row['pid']: row['io_us'] for row in by_process} == {
        p.pid: len(moments((c[2], c[3]) for c in p.calls)) for p in processes}


def test_timeline(tmp_path, answer):
    """Each call is in the row of its start, and the rows cover 1 ms each."""
    processes = job(1)
    for p in processes:
        p.save(tmp_path)
    found = answer(tmp_path, '--layout', 'timeline')
    calls = [c for p in processes for c in p.calls]
    assert [row['width_us'] for row in found['rows']] == [1000] * len(found['rows'])
    for row in found['rows']:
        mine = [c for c in calls if row['time_us'] <= c[2] < row['time_us'] + 1000]
        assert row['calls'] == len(mine) and row['total_us'] == sum(c[3] - c[2] for c in mine)
        assert row['read_bytes'] == sum(c[5] for c in mine if MOVING[c[0]] == 'r')
        assert row['write_bytes'] == sum(c[5] for c in mine if MOVING[c[0]] == 'w')
    assert sum(row['calls'] for row in found['rows']) == len(calls)


def test_files(tmp_path, answer):
    """Each finding has a file that shows it and a file that barely does not."""
    p = Process(0, 5)
    at = [0]

    def io(function, path, **more):
        p.io(function, path, at[0], at[0] + 1, **more)
        at[0] += 2
    io('open', '/d/unread')
    io('open', '/d/once')
    io('read', '/d/once', bytes=100, offset=0)
    for i in range(120):
        io('read', '/d/small', bytes=4095, offset=4096 * i)
        io('read', '/d/whole', bytes=4096, offset=4096 * i)
        io('read', '/d/unaligned', bytes=8192, offset=8192 * i + 7)
        io('read', '/d/unknown', bytes=8192)
        io('write', '/d/log', bytes=80)
        io('write', '/d/lump', bytes=4096)
    for i in range(4):
        io('read', '/d/again', bytes=10000, offset=0)
    io('read', '/d/half', bytes=10000, offset=0)
    io('read', '/d/half', bytes=9999, offset=0)
    for i in range(100):
        io('__fxstat', '/d/storm')
        io('lseek', '/d/calm')
    for i in range(11):
        io('write', '/d/calm', bytes=3)
    p.save(tmp_path)
    rows = {row['path']: row for row in answer(tmp_path, '--layout', 'files')['rows']}
    assert {path: row['findings'] for path, row in rows.items()} == {
        '/d/unread': 'never read', '/d/once': None, '/d/small': 'small reads', '/d/whole': None, '/d/unaligned': 'unaligned reads',
        '/d/unknown': None, '/d/again': 'repeated reads', '/d/half': None, '/d/storm': 'metadata storm', '/d/calm': None,
        '/d/log': 'small writes', '/d/lump': None}
    assert rows['/d/again']['repeated_bytes'] == 30000 and rows['/d/half']['repeated_bytes'] == 9999
    assert rows['/d/unknown']['repeated_bytes'] is None and rows['/d/unknown']['unaligned_reads'] is None
    assert rows['/d/unaligned']['unaligned_reads'] == 120 and rows['/d/small']['small_reads'] == 120
    assert (rows['/d/log']['small_writes'], rows['/d/lump']['small_writes'], rows['/d/calm']['small_writes']) == (120, 0, 11)


def test_sums(tmp_path, answer):
    """Calls that the recorder added up count with their sums; their quartiles are unknown, their extremes are not."""
    p = Process(0, 5)
    function, path = p.w.string('POSIX\x1fFILE\x1fread\x1f'), p.w.string('/d/file')
    for at, calls, errors, least, most in ((0, 10, 3, 7, 90), (500, 5, 0, 100, 4096)):
        p.of_thread[1].append(rec('io_sum', func=function, time=at * US, duration=200 * US, busy=50 * US, longest=20 * US, calls=calls,
                                  errors=errors, requested=5000, bytes=1000 * calls, least=least, most=most, path=path))
    p.io('read', '/d/file', 900, 910, bytes=5)
    p.io('read', '/d/file', 920, 921, error=5)
    p.save(tmp_path)
    [row] = answer(tmp_path, '--group-by', 'file')['rows']
    assert (row['calls'], row['errors'], row['bytes'], row['total_us'], row['unoverlapped_us']) == (17, 4, 15005, 111, 411)
    assert (row['size_min'], row['size_median'], row['size_max']) == (5, None, 4096)
    [file] = answer(tmp_path, '--layout', 'files')['rows']
    assert (file['read_calls'], file['read_bytes'], file['repeated_bytes']) == (17, 15005, None)


def test_sums_of_failed_calls(tmp_path, answer):
    """Added-up calls that failed are errors, and an open that failed opens nothing; more errors than calls are all of them."""
    p = Process(0, 5)
    function, path = p.w.string('POSIX\x1fFILE\x1fopen64\x1f'), p.w.string('/d/file')
    for at, calls, errors in ((0, 10, 4), (300, 6, 6), (600, 2, 9)):
        p.of_thread[1].append(rec('io_sum', func=function, time=at * US, duration=200 * US, busy=50 * US, longest=20 * US, calls=calls,
                                  errors=errors, path=path))
    p.save(tmp_path)
    [row] = answer(tmp_path)['rows']
    assert (row['function'], row['calls'], row['errors']) == ('open64', 18, 12)
    [file] = answer(tmp_path, '--layout', 'files')['rows']
    assert (file['opens'], file['metadata_calls']) == (6, 18)


def test_operations_of_io_uring(tmp_path, answer):
    """Traces of older versions have operations of io_uring, some without a result: these count as calls that move nothing."""
    p = Process(0, 5)
    for at, function, result in ((0, 'io_uring_read', 70), (10, 'io_uring_read_fixed', -2 ** 63), (20, 'io_uring_fsync', 0)):
        p.of_thread[1].append(rec('io', func=p.w.string(f'uring\x1fREAD\x1f{function}\x1f'), time=at * US, duration=US, result=result,
                                  bytes=100, offset=-1, path=p.w.string('/d/file'), fd=3))
    p.save(tmp_path)
    assert {row['function']: (row['calls'], row['bytes']) for row in answer(tmp_path)['rows']} == {
        'io_uring_read': (1, 70), 'io_uring_read_fixed': (1, 0), 'io_uring_fsync': (1, 0)}
    [file] = answer(tmp_path, '--layout', 'files')['rows']
    assert (file['read_calls'], file['read_bytes']) == (2, 70)


def test_refusals(tmp_path, tfanalyze):
    """Options that contradict each other give status 2 and a line that says why."""
    path = Process(0, 5).save(tmp_path)
    for words, why in ((('--rules', 'dfanalyzer', '--layout', 'files'), 'dfanalyzer'), (('--layout', 'timeline', '--group-by', 'file'), 'timeline'),
                       (('--layout', 'summary', '--group-by', 'file'), 'summary'), (('--rules', 'hta'), 'exact|dfanalyzer')):
        run = ran(tfanalyze, *words, path)
        assert run.returncode == 2 and why in run.stderr, run.stderr
    run = ran(tfanalyze, path)
    assert run.returncode == 0 and 'no calls on files' in run.stderr


# ---- dftracer-analyzer ----

# The figures of dftracer-analyzer 0.0.9 (with dftracer-utils 0.0.12 and Python 3.11), printed by
# `dfanalyzer trace_path=DIRECTORY analyzer/preset=posix output=json cluster.n_workers=1`. It reads numbers that are texts as 0, so
# it had copies of the other two traces with numbers instead.
SAID = {
    'cm1': {'job_time_s': 145.348226, 'total_event_count': 49268, 'unique_process_count': 8, 'time_s': 1.509125, 'count': 49252,
            'size_bytes': 122013519.0, 'ops_per_s': 32636.13020790193, 'bandwidth_bps': 80850505.42532924},
    'test-trace.pfw.gz': {
        'job_time_s': 105.256111, 'total_event_count': 93894, 'unique_process_count': 1, 'time_s': 55.853232999999996, 'count': 88090,
        'size_bytes': 21455286649.0, 'ops_per_s': 1577.1692213412248, 'bandwidth_bps': 384136879.7577036},
    'test.pfw': {'job_time_s': 1.898002, 'total_event_count': 1012, 'unique_process_count': 1, 'time_s': 0.931087, 'count': 1012,
                 'size_bytes': 134348800.0, 'ops_per_s': 1086.9016536585732, 'bandwidth_bps': 144292423.80142778}}


def is_dfanalyzers(found, said):
    [row], totals = found['rows'], found['totals']
    assert found['rules'] == 'dfanalyzer' and row['layer'] == 'posix'
    assert (row['calls'], row['bytes']) == (said['count'], said['size_bytes'])
    assert row['time_us'] == pytest.approx(said['time_s'] * 1e6, abs=1e-3)
    assert row['calls_per_s'] == pytest.approx(said['ops_per_s'], rel=1e-9)
    assert row['bandwidth_bps'] == pytest.approx(said['bandwidth_bps'], rel=1e-9)
    assert totals['job_time_us'] == pytest.approx(said['job_time_s'] * 1e6, abs=1e-3)
    assert (totals['events'], totals['processes']) == (said['total_event_count'], said['unique_process_count'])


@pytest.mark.parametrize('name', SAID)
def test_dfanalyzer(shared_traces, answer, name):
    """The summary equals dftracer-analyzer's."""
    is_dfanalyzers(answer(shared_traces / 'dftracer' / name, '--rules', 'dfanalyzer'), SAID[name])


def events_of(path):
    with (gzip.open if path.suffix == '.gz' else open)(path, 'rt') as f:
        for line in f:
            if line.strip().startswith('{'):
                event = json.loads(line)
                if event['ph'] == 'X' and event['cat'] in ('POSIX', 'STDIO'):
                    yield event


def union(spans):
    total, until = 0, -1
    for start, end in sorted(spans):
        total += max(0, end - max(start, until))
        until = max(until, end)
    return total


@pytest.mark.parametrize('name', ['cm1', 'test-trace.pfw.gz', 'test.pfw'])
def test_dftracers_traces(shared_traces, answer, name):
    """Calls, bytes and times of each function, and the summary of each rank, equal a count of the lines."""
    path = shared_traces / 'dftracer' / name
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    calls, total, moved = Counter(), Counter(), Counter()
    for file in files:
        for event in events_of(file):
            calls[event['name']] += 1
            total[event['name']] += int(event['dur'])
            moved[event['name']] += max(0, int(event['args'].get('ret', 0))) if event['name'] in ('read', 'write', 'fread') else 0
    found = answer(path)
    assert {row['function']: (row['calls'], row['total_us'], row['bytes']) for row in found['rows']} == {
        name: (calls[name], total[name], moved[name]) for name in calls}
    rows = answer(path, '--layout', 'summary')['rows']
    want = [union((int(e['ts']), int(e['ts']) + int(e['dur'])) for e in events_of(file)) for file in files]
    assert [row['io_us'] for row in rows] == want
