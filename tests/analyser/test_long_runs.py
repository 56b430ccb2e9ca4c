"""test_long_runs - long runs of a CPU: questions that add up read records in order of time instead of holding them, with equal
answers. `stages` and `breakdown` leave these records out. Exports of some times load the records of these times. All readings
of such a trace agree about what is damaged, and a file that changes between them is noticed, by other questions too.

A node of a CUDA graph does not change these answers, but makes tfanalyze hold the records. So each trace is written
twice, with such a node and without one, and both answers must be the same, byte for byte. `memory` holds the records too if
the file's descriptor is 512 or more: it answers about each trace twice, the second time with as many others open.
"""

import json
import random
import re
import subprocess
import sys

import pytest

from conftest import COMMAND_TIMEOUT, clean_environment
from optrace import BACKWARD, FUNCTION, OpTrace
from test_device_records import ticks
from tfr import CHUNK, KINDS, NESTED, STAGE, good_block, read, rec

pytestmark = pytest.mark.slow

ASYNC = 0x20000

NAMES = ['aten::add', 'aten::add', 'aten::mul', 'aten::linear', 'aten::is_leaf', 'mylib::op', 'load']
SHAPES = [None, [[2, 3], []], [[4], [4]], []]
MODULES = [None, None, 'top.', 'top.first.inner.']
FRAMES = [(), (('f', 'a.py', 1), ('main', 'a.py', 9)), (('g', 'b.py', 2),)]


class LongTrace(OpTrace):
    """A trace of three threads, whose chunks are written as they fill."""

    def __init__(self, rng, grid, backward, names):
        super().__init__()
        self.rng, self.grid, self.backward, self.names, self.sequence = rng, grid, backward, names, 0

    def operators(self, thread, start, end, depth):
        """Writes operators that nest, follow each other, or now and then overlap."""
        rng, at = self.rng, start
        while at < end:
            stop = min(end, at + self.grid * rng.choice([0, 1, 1, 2, 5, 30, 200]))
            if depth < 6 and stop > at and rng.random() < 0.7:
                self.operators(thread, at, rng.choice([stop, max(at, stop - self.grid)]), depth + 1)
            late = self.grid if rng.random() < 0.05 else 0
            links = {}
            if self.backward and rng.random() < 0.3:
                self.sequence += rng.random() < 0.5
                back = rng.random() < 0.4
                links = {'sequence': max(0, self.sequence - back * rng.randrange(3)), 'scope': BACKWARD if back else FUNCTION,
                         'forward': rng.choice([1, 2]) if back else 0}
            self.op(rng.choice(self.names), at, stop + late, thread, shapes=rng.choice(SHAPES), flops=rng.choice([0, 0, 48]),
                    frames=rng.choice(FRAMES), modules=rng.choice(MODULES), **links)
            at = stop + self.grid * rng.choice([0, 0, 1, 3])
            if stop == at:
                at += self.grid

    def memory(self, last, count, allocators):
        rng, live, total = self.rng, {}, {}
        for _ in range(count):
            time, thread, device = self.grid * rng.randrange(last // self.grid + 1), rng.choice([1, 2, 3]), rng.choice([-1, -1, 0])
            allocator = rng.choice(allocators)
            device = device if allocator == 'c10' else -1
            address = 4096 * rng.randrange(12)
            size = live.pop((device, address), 0)
            size = -size if size and rng.random() < 0.9 else rng.choice([64, 512, 4096])
            if size > 0:
                live[device, address] = size
            total[device] = max(0, total.get(device, 0) + size)
            self.block(time, address, size, total[device], total[device] + 8192, device, thread, rng.choice(FRAMES), allocator)

    @staticmethod
    def invalid(bad):
        column = next(field for field in KINDS[bad[0]].fields if field.name == bad[1])
        return lambda field, values: 99 if field is column else None

    def refused(self, time, size, device):
        self.later_on(1, rec('oom', allocator=self.w.string('c10'), time=ticks(time), bytes=size, allocated=100, reserved=200,
                             device=device))

    def stages(self, last):
        rng = self.rng
        for _ in range(12):
            start = self.grid * rng.randrange(last // self.grid)
            self.ranges += 1
            end = start + self.grid * rng.choice([1, 10, 100])
            flags = STAGE | (NESTED if rng.random() < 0.8 else ASYNC)
            self.later_on(rng.choice([1, 2]), rec('range_end', name=self.w.string(rng.choice(['load', 'run', 'step'])), time=ticks(end),
                                                  duration=ticks(end - start), id=self.ranges, flags=flags, thread=rng.choice([1, 2])))

    def fill(self, size):
        """Writes texts that no record refers to, so that the file has more bytes than `size`."""
        for number in range(size // 60000 + 1):
            self.w.string(f'{number:06}' + 'x' * 60000)
            self.w.flush_strings()

    def save(self, path, held, order, hurt=False, bad=None, drops=False, bulk=0, counts=(1, 5, 40, 40, 90)):
        """Writes the threads' chunks between each other; `order` shuffles some, and chooses what is damaged and cut.

        In every third chunk the column `bad`, (kind, name), is no valid one; with `drops` the records of this kind are
        missing there instead.
        """
        self.fill(bulk)
        if held:
            self.records.append(rec('graph_node', time=ticks(5), node=1 << 32))
        self.w.chunk(self.records, thread=1, tid=101)
        chunks = []
        for thread, records in sorted(self.later.items()):
            records = sorted(records, key=lambda r: r.values['time'] + (r.values['duration'] if r.kind == 'op' else 0))
            at = 0
            while at < len(records):
                count = order.choice(counts)
                chunks.append((records[at:at + count], thread))
                at += count
        chunks.sort(key=lambda chunk: chunk[0][-1].values['time'] + order.choice([0, 0, 0, 10 ** 6]))
        for number, (records, thread) in enumerate(chunks):
            form, pick = order.choice(['columns', 'columns', 'rows']), None
            if bad and number % 3 == 0 and any(record.kind == bad[0] for record in records):
                form, pick = 'columns', self.invalid(bad)
                records = [record for record in records if not (drops and record.kind == bad[0])]
            self.w.chunk(records, thread=thread, tid=100 + thread, form=form, pick=pick)
        self.w.footer()
        if hurt:
            blocks = self.w.blocks[8:]
            for block in order.sample(blocks, 3):
                self.w.data[(block.offset + block.end) // 2] ^= 0xff
            del self.w.data[order.choice(blocks[len(blocks) // 2:]).end - 9:]
        return self.w.save(path)


def written(path, seed, held, backward=False, grid=1000, last=3_000_000, hurt=False, names=NAMES, allocators=('c10',), recorded=False,
            **more):
    rng = random.Random(seed)
    t = LongTrace(rng, grid, backward, names)
    for thread in (1, 2, 3):
        t.operators(thread, grid * rng.randrange(5), last * 9 // 10, 0)
    t.memory(last, rng.choice([0, 30, 300]), allocators)
    t.stages(last)
    for number in range(1, t.ranges) if recorded else ():
        t.stage_memory(number, rng.randrange(last), rng.randrange(5000), device=rng.choice([-1, 0]))
    for _ in range(rng.choice([0, 3, 20])):
        t.refused(grid * rng.randrange(last // grid), 512, rng.choice([-1, 0]))
    t.call('cudaGetDevice', 3 * grid, 2 * grid, thread=2, kind='CONTEXT')
    return t.save(path, held, random.Random(seed + 1), hurt, **more)


CROWDED = ['bash', '-c', 'for fd in {3..520}; do eval "exec $fd</dev/null"; done; exec "$@"', 'crowded']


def answers(program, path, words, crowded=False):
    paths = [path, path] if words[0] == 'diff' else [path]
    done = subprocess.run([*(CROWDED if crowded else []), program, *words, *paths], capture_output=True, text=True, check=False)
    out = done.stdout.replace(str(path), '')
    if '--format' in words and out:
        answer = json.loads(out)
        del answer['inputs']
        out = json.dumps(answer, indent=1)
    return done.returncode, out, re.sub(r'\d+', 'N', done.stderr.replace(str(path), ''))


OPS = [['ops'], ['ops', '--format', 'json'], ['ops', '--group-by', 'name,shapes,stack=2', '--format', 'json'],
       ['ops', '--sort-by', 'self_cpu_time_total', '--row-limit', '3'],
       ['ops', '--sort-by', 'cpu_memory_usage', '--group-by', 'name,shapes', '--format', 'json'],
       ['ops', '--group-by', 'name,modules', '--format', 'json'], ['ops', '--group-by', 'name,shapes,modules,stack=2', '--stage', 'run'],
       ['ops', '--stage', 'run', '--format', 'json'], ['ops', '--stage', '(none)', '--format', 'json'],
       ['ops', '--from', '0.0005', '--to', '0.0015', '--format', 'json'], ['ops', '--top', '2']]
STAGES = [['stages', '--format', 'json'], ['stages', '--exclusive', '--stage', 'run'], ['breakdown', '--format', 'json'],
          ['breakdown', '--group-by', 'op', '--stage', 'run']]

SUMS = [['stacks'], ['stacks', '--layout', 'speedscope', '--stage', 'run'], ['launches', '--format', 'json'],
        ['launches', '--stage', 'run'], ['launches', '--from', '0.0005', '--to', '0.0015', '--format', 'json'], ['diff', '--by', 'op', '--format', 'json'], ['diff', '--by', 'op', '--stage', 'run,load'],
        ['diff', '--by', 'op', '--from', '0.0005', '--to', '0.0015'], ['steps', '--format', 'json'], ['io', '--format', 'json']]


def shaped(seed, **more):
    """The shape of a random trace; every fourth is damaged and cut."""
    return {'backward': seed % 3 == 2, 'grid': 1000 if seed % 2 else 997, 'hurt': seed % 4 == 3, **more}


def check(got, other, words, hurt):
    assert got == other, words
    assert got[0] in ((3, 1) if hurt else (0, 1)), (words, got)
    assert got[1] or got[0] == 1


@pytest.mark.parametrize('seed', range(12))
def test_operators(tmp_path, tfanalyze, seed):
    shape = shaped(seed)
    swept = written(tmp_path / 'swept.tfr', seed, held=False, **shape)
    held = written(tmp_path / 'held.tfr', seed, held=True, **shape)
    for words in OPS + STAGES + SUMS:
        check(answers(tfanalyze, swept, words), answers(tfanalyze, held, words), words, shape['hurt'])


class FlatTrace(LongTrace):
    """Stages in each other around a few short operators, often with one name, so that an only child is folded into a stage."""

    def stage_of(self, thread, start, end, depth):
        rng, at = self.rng, start
        while at < end:
            stop, name = at + self.grid * rng.choice([1, 2, 7, 30, 120]), rng.choice(['load', 'run', 'run', 'run'])
            if depth and rng.random() < 0.6:
                late = self.grid * rng.choice([0, 0, 0, 5])
                self.ranges += 1
                self.later_on(thread, rec('range_end', name=self.w.string(name), time=ticks(stop + late), duration=ticks(stop + late - at),
                                          id=self.ranges, flags=STAGE | (NESTED if rng.random() < 0.9 else ASYNC), thread=thread))
                self.stage_of(thread, at + self.grid * rng.choice([0, 1, 5]), stop, depth - 1)
            elif rng.random() < 0.8:
                for first in range(at, stop, 40 * self.grid):
                    self.op(name, first, first + self.grid, thread)
                if rng.random() < 0.3:
                    self.op(name, at, stop, thread)
                self.block(at + self.grid // 2, 4096, rng.choice([64, -64]), 0, 0, -1, rng.choice([1, 2]))
            at = stop + self.grid * rng.choice([0, 3, 40])


@pytest.mark.parametrize('seed', range(6))
def test_operators_of_a_part(tmp_path, tfanalyze, seed):
    """Of a part of a run only the chunks are read that its rows depend on: with what its stages contain, and with siblings."""
    paths = []
    for held in False, True:
        t = FlatTrace(random.Random(seed), 1000, False, [])
        for thread in (1, 2):
            t.stage_of(thread, 1000 * seed, 1_000_000, 3)
        paths.append(t.save(tmp_path / f'{held}.tfr', held, random.Random(seed), counts=(1, 1, 3)))
    rng, found = random.Random(seed), 0
    for _ in range(40):
        start = rng.randrange(1_000_000)
        times = [['--from', f'{start / 1e9:.9f}'], ['--to', f'{(start + rng.choice([2000, 10 ** 4, 10 ** 5])) / 1e9:.9f}']]
        words = ['ops', *sum(rng.choice([times, times, times[:1], times[1:]]), []), *rng.choice([[], [], ['--stage', 'run']]), '--format', 'json', '-j', '1']
        swept, held = (answers(tfanalyze, path, words) for path in paths)
        assert swept == held, words
        found += '"name"' in swept[1]
    assert found > 20


FILTERS = [[], ['--stage', 'run'], ['--stage', '(none)'], ['--from', '0.0005', '--to', '0.0015'], ['--device', '0'], ['--top', '3']]
LAYOUTS = ['timeline', 'raw', 'peaks', 'leaks', 'oom']
MEMORY = ([['memory', '--layout', layout, '--format', 'json', *words] for layout in LAYOUTS for words in FILTERS] +
          [['memory', '--layout', layout] for layout in LAYOUTS] + [['memory', '--layout', 'html', *words] for words in FILTERS])


@pytest.mark.parametrize('seed', range(8))
def test_memory(tmp_path, tfanalyze, seed):
    """Blocks of several allocators on three threads, freed twice, never, or at an address in use."""
    shape = shaped(seed, allocators=['c10', 'c10', 'malloc', 'mmap'], recorded=seed % 2 == 1)
    path = written(tmp_path / 'trace.tfr', seed, held=False, **shape)
    for words in MEMORY:
        check(answers(tfanalyze, path, words), answers(tfanalyze, path, words, crowded=True), words, shape['hurt'])


def chunks(data):
    """The bytes of the chunks of a trace, a damaged one as the bytes up to the next block."""
    ends = [at for at in range(0, len(data), 8) if good_block(data, at)] + [len(data)]
    return [data[at:end] for at, end in zip(ends, ends[1:]) if good_block(data, at).type == CHUNK]


@pytest.mark.parametrize('seed', range(8))
def test_threads(tmp_path, tfanalyze, seed):
    """A second thread that inflates ahead changes no answer; chunks are damaged, in the file twice, and some of them rows."""
    shape, rng = shaped(seed), random.Random(seed)
    path = written(tmp_path / 'trace.tfr', seed, held=False, **shape)
    whole = path.read_bytes()
    for chunk in rng.sample(chunks(whole), 20):
        whole = whole.replace(chunk, chunk * 2, 1)
    path.write_bytes(whole)
    for words in OPS + MEMORY[::4]:
        one, two = (answers(tfanalyze, path, [*words, '-j', jobs]) for jobs in '12')
        check(two, one, words, shape['hurt'])


# ---- parts ----

BULK = 1 << 20  # bytes: smaller traces are loaded as a whole
PARTS = [['--from', '0.0005', '--to', '0.0006'], ['--to', '0.0003'], ['--from', '0.002'], ['--stage', 'run'],
         ['--stage', 'load', '--from', '0.0005', '--to', '0.0015'], ['--stage', '(none)'], ['--step', '3'], ['--stage', 'absent']]


def without_ids(text):
    """The events of a Chrome trace; an arrow is the list of its ends, as its id depends on the other arrows."""
    trace = json.loads(text)
    arrows = {}
    for event in trace['traceEvents']:
        if event.get('cat') == 'fwdbwd':
            arrows.setdefault(event.pop('id'), []).append(event)
    trace['traceEvents'] = [event for event in trace['traceEvents'] if event.get('cat') != 'fwdbwd']
    return trace, sorted(arrows.values(), key=str)


def exported(program, path, words, crowded=False):
    status, out, said = answers(program, path, words, crowded)
    return status, without_ids(out) if out else None, said


@pytest.mark.parametrize('seed', range(6))
def test_parts(tmp_path, tfanalyze, seed):
    """Exports of some times, stages or steps; `merge` reads each input on another way."""
    shape = shaped(seed)
    path = written(tmp_path / 'trace.tfr', seed, held=False, bulk=BULK, **shape)
    for command in (['export', 'chrome'], ['merge']):
        for words in PARTS:
            words = [*command, *words]
            check(exported(tfanalyze, path, words), exported(tfanalyze, path, words, crowded=True), words, shape['hurt'])


LOOP = '''
import torch
torch.set_num_threads(1)
a = torch.ones(4)
for step in range(100):
    with torch.profiler.record_function(f'step{step % 10}'):
        for _ in range(1000):
            (a + a).sum()
'''


# A small process starts the program: a child's peak includes what its parent had in memory.
PEAK = 'import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)'


@pytest.mark.slow
def test_memory_of_a_part(tmp_path, tfanalyze, lib, python):
    """The memory of an export grows with the part, and not with the run."""
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    subprocess.run([python, '-c', LOOP], env=env, check=True, timeout=COMMAND_TIMEOUT)

    def peak(*words):
        words = [tfanalyze, 'export', 'chrome', *words, '--output', tmp_path / 'x.json', tmp_path / 'run']
        return int(subprocess.run([sys.executable, '-c', PEAK, *words], capture_output=True, check=True).stdout) / 1024

    whole = peak()
    assert whole > 80
    assert max(peak('--to', '0.05'), peak('--stage', 'step7')) < whole / 3
def count(path, kind):
    return sum(record.kind == kind for record in read(path).records)


@pytest.mark.parametrize('column', ['memory allocator', 'memory stack', 'memory bytes', 'op forward_thread', 'op scope', 'op stack',
                                    'op name'])
@pytest.mark.parametrize('seed', [1, pytest.param(3, marks=pytest.mark.soak)])
def test_invalid_columns(tmp_path, tfanalyze, column, seed):
    """Records with an invalid column are left out and counted, whether the first or the second reading meets it. The second one of
    `ops` about a part of the run meets only those of the part."""
    bad, shape = tuple(column.split()), {'held': False, 'grid': 1000 if seed % 2 else 997}
    whole = written(tmp_path / 'whole.tfr', seed, **shape)
    spoiled = written(tmp_path / 'spoiled.tfr', seed, bad=bad, **shape)
    without = written(tmp_path / 'without.tfr', seed, bad=bad, drops=True, **shape)
    lacks = count(whole, bad[0]) - count(without, bad[0])
    whole_run = [words for words in OPS if not {'--from', '--stage'} & set(words)]
    met = {'memory allocator': [*OPS, *MEMORY], 'memory stack': MEMORY, 'memory bytes': [*whole_run, *MEMORY], 'op name': whole_run,
           'op stack': OPS[6:9]}.get(column, OPS[7:9])
    assert lacks
    for words in met:
        if {'oom', 'html'} & set(words):  # oom reads only up to the last refusal; a page names its file
            continue
        rc, out, _ = answers(tfanalyze, without, words)
        assert answers(tfanalyze, spoiled, words)[:2] == (3 if rc != 1 else 1, out), words
        got = subprocess.run([tfanalyze, *words, spoiled], capture_output=True, text=True, check=False)
        assert f'{lacks} records' in got.stderr, (words, got.stderr)


def chunky(path, count, held=False):
    """A trace whose chunks have an operator and a block each."""
    t = OpTrace()
    t.records += [rec('graph_node', time=ticks(5), node=1 << 32)] if held else []
    t.w.chunk(t.records, thread=1, tid=101)
    for i in range(count):
        t.op('aten::add', 1000 * i, 1000 * i + 500)
        t.block(1000 * i + 20, 4096 * i, 64, 64 * i + 64)
        t.w.chunk(t.later.pop(1), thread=1, tid=101)
    t.w.footer()
    return t.w.save(path)


# The question, what counts the chunks in an answer's rows, and how many records of a chunk it asks for.
CUTS = {'ops': (['ops'], lambda rows: sum(row['calls'] for row in rows if row['name'] == 'aten::add'), 2),
        'memory': (['memory', '--layout', 'raw'], len, 1),
        'dump': (['dump'], lambda rows: sum(row['kind'] == 'memory' for row in rows), 2),
        'launchers': (['stages'], None, 2)}


@pytest.mark.parametrize('question', CUTS)
def test_file_that_is_cut_between_two_readings(tmp_path, tfanalyze, victim, question):
    """What the second reading misses is said and counted; it asks for each chunk once."""
    words, counted, records = CUTS[question]
    chunks, told = 300, tmp_path / 'calls'
    path = chunky(tmp_path / 'run.tfr', chunks, held=question == 'launchers')
    whole = path.read_bytes()
    env = {**clean_environment(), 'LD_PRELOAD': str(victim('libadversary.so')), 'ADVERSARY_COUNT': str(told), 'F': str(path)}

    def run(**more):
        done = subprocess.run([tfanalyze, *words, '-j', '1', '--format', 'json', path], env={**env, **more}, capture_output=True,
                              text=True, check=False, timeout=COMMAND_TIMEOUT)
        path.write_bytes(whole)
        unread = re.search(r'(\d+) records could not be read again', done.stderr)
        return done, int(told.read_text().split()[-1]), int(unread[1]) if unread else 0

    done, calls, unread = run()
    assert done.returncode == 0 and not unread
    found = 0
    for back in range(5, chunks, 60):
        cut, its_calls, unread = run(ADVERSARY_DO=f'truncate -s {len(whole) // 2} "$F"', ADVERSARY_AT=str(calls - back))
        assert its_calls <= calls + 1, 'a chunk is asked for once, and the one that the cut divides twice'
        assert cut.returncode == (3 if unread else 0), cut.stderr
        assert unread or back < chunks // 2, 'half of the chunks are gone'
        if counted:
            assert counted(json.loads(cut.stdout)['rows']) + unread // records == chunks
        found += unread > 0
    assert found > 1


TRAIN = '''
import threading, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer, kept = torch.optim.Adam(model.parameters()), []
def load():
    for step in range(200):
        with torch.profiler.record_function('load'):
            torch.ones(step) + 1
worker = threading.Thread(target=load)
worker.start()
for step in range(40):
    with torch.profiler.record_function('step'):
        with torch.profiler.record_function('forward'):
            loss = model(torch.randn(16, 32)).square().mean()
        loss.backward()
        optimizer.step()
        kept.append(torch.ones(step))
worker.join()
'''


@pytest.fixture(scope='module', params=['mem,ops,stack', pytest.param('mem', marks=pytest.mark.soak)])
def training(request, tmp_path_factory, lib, python):
    directory = tmp_path_factory.mktemp('training')
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(directory), 'TFI_ACTIVITIES': request.param}
    if request.param == 'mem':
        env.update({'TFI_HOST_ALLOC_KB': '1', 'LD_PRELOAD': f'{lib.with_name("libtfinject-alloc.so")} {lib}'})
    subprocess.run([python, '-c', TRAIN], env=env, check=True, timeout=COMMAND_TIMEOUT)
    return next(directory.glob('*.tfr'))


def test_memory_of_torch(tfanalyze, training):
    """A training with two threads; without its operators no stage is that of a forward one, so that all layouts sweep."""
    for words in MEMORY:
        words = ['step' if word == 'run' else word for word in words]
        check(answers(tfanalyze, training, words), answers(tfanalyze, training, words, crowded=True), words, False)


def test_beside_a_file_of_many_ranks(tmp_path, tfanalyze_asan):
    """Inputs move when a file turns out to hold more processes: the operators of the long run are still read from its file."""
    path = written(tmp_path / 'swept.tfr', 1, held=False)
    events = [{'ph': 'X', 'cat': 'cpu_op', 'name': 'aten::mm', 'pid': 1000 * rank, 'tid': 1, 'ts': 10, 'dur': 5, 'args': {'rank': rank}}
              for rank in range(40)]
    ranks = tmp_path / 'ranks.json'
    ranks.write_text(json.dumps({'traceEvents': events}))
    alone = json.loads(subprocess.run([tfanalyze_asan, 'ops', '--format', 'json', path], capture_output=True, check=True).stdout)
    both = json.loads(subprocess.run([tfanalyze_asan, 'ops', '--format', 'json', path, ranks], capture_output=True, check=True).stdout)
    assert len(both['inputs']) == 41
    names = {row['name']: row['calls'] for row in both['rows']}
    assert names == {**{row['name']: row['calls'] for row in alone['rows']}, 'aten::mm': 40}
