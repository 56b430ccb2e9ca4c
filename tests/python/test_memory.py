"""test_memory - blocks of torch's allocators, and their sums by stage: on a stand-in for libc10, and on torch.

The stand-in (tests/victims/libc10.c) reports blocks as a script tells it, for the host and for devices that this
machine lacks. On torch, every number is compared with torch.profiler(profile_memory=True) in the same run.
"""

import functools
import json
import re
import sys

import pytest

import kineto
from conftest import clean_environment, execute

# For scripts: the stand-in c, ranges by push, pop, start and end, and blocks h (host) and d (device).
HEAD = '''
import ctypes, os, sys, threading
c = ctypes.CDLL(LIBRARY)
c.c10_host.argtypes = [ctypes.c_uint64, ctypes.c_int64]
c.c10_device.argtypes = [ctypes.c_int, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int64]
c.c10_mapped.argtypes = c.c10_host.argtypes
c.c10_seen.restype = ctypes.c_int64
t = ctypes.CDLL(None)
try:
    t.tfi_range_start.restype, t.tfi_range_end.argtypes = ctypes.c_uint64, [ctypes.c_uint64]
    push, pop, start, end = (lambda n: t.tfi_range_push(n.encode())), t.tfi_range_pop, lambda n: t.tfi_range_start(n.encode()), t.tfi_range_end
except AttributeError:
    push = pop = start = end = lambda *a: 0
def h(block, size): c.c10_host(block, size)
def mapped(block, size): c.c10_mapped(block, size)
def d(device, block, size, more=0): c.c10_device(device, block, size, more)
def elsewhere(f, *a):
    thread = threading.Thread(target=f, args=a)
    thread.start()
    thread.join()
'''


@pytest.fixture
def play(run, victim):
    """play(script, env={}) runs the script with the stand-in; result.out has its output."""
    def play(script, env=None, **options):
        text = f'LIBRARY = {str(victim("libc10.so"))!r}\n' + HEAD + script
        result = run([sys.executable, '-c', text], env=env, **options)
        assert result.rc == 0 and result.err == '', result.err
        return result
    return play


@pytest.fixture
def records(analyze):
    def records(directory, kind, rc=0):
        return [dict(r['values'], pid=r['pid'], time_us=r['time_us'])
                for r in analyze('dump', directory, rc=rc)['rows'] if r['kind'] == kind]
    return records


@pytest.fixture
def by_stage(records):
    """by_stage(directory) -> {(stage, device): (before, after, peak, reserved peak, allocated, freed)} in bytes."""
    def by_stage(directory):
        names = {(r['pid'], r['id']): r['name'] for r in records(directory, 'range_end')}
        rows = records(directory, 'stage_memory')
        found = {(names[r['pid'], r['id']], r['device']): tuple(r[k + '_bytes'] for k in (
            'allocated_before', 'allocated_after', 'allocated_peak', 'reserved_peak', 'allocated', 'freed')) for r in rows}
        assert len(found) == len(rows), 'two records of one stage and device'
        return found
    return by_stage


def timing(directory):
    path, = directory.glob('*.timing.json')
    return json.loads(path.read_text())['stages']


# ---- on the stand-in ----

def test_blocks(play, records):
    """Each block is a record with the allocator's totals, the device and the reporting allocator."""
    result = play('push("s"); h(4096, 100); d(1, 8192, 1000, 2000); d(1, 8192, -1000); h(4096, -100); pop()')
    rows = [(r['allocator'], int(r['address'], 0), r['bytes'], r['allocated_bytes'], r['reserved_bytes'], r['device'])
            for r in records(result.dir, 'memory')]
    assert rows == [('c10', 4096, 100, 100, 0, -1), ('c10', 8192, 1000, 1000, 2000, 1),
                    ('c10', 8192, -1000, 0, 2000, 1), ('c10', 4096, -100, 0, 0, -1)]


def test_no_memory(play, records, analyze, tmp_path):
    """An allocator without memory reports the requested size and its totals, exported as Kineto's instant."""
    result = play('push("s"); d(1, 8192, 1000, 2000); c.c10_enable(1); c.c10_oom(1, ctypes.c_int64(1 << 40)); print(c.c10_seen(5)); pop()')
    assert result.out == '1\n', 'the original must be called once'
    rows = [(r['allocator'], r['bytes'], r['allocated_bytes'], r['reserved_bytes'], r['device']) for r in records(result.dir, 'oom')]
    assert rows == [('c10', 1 << 40, 1000, 2000, 1)] and len(records(result.dir, 'memory')) == 1
    analyze('export', 'chrome', result.dir, '--output', tmp_path / 'trace.json', format=None)
    event, = (e for e in json.loads((tmp_path / 'trace.json').read_text())['traceEvents'] if e['name'] == '[OutOfMemory]')
    assert event['ph'] == 'i' and event['cat'] == 'cpu_instant_event'
    assert {k: v for k, v in event['args'].items() if k != 'Ev Idx'} == {
        'Total Reserved': 2000, 'Total Allocated': 1000, 'Bytes': 1 << 40, 'Device Id': 1, 'Device Type': 1}
    for number, path in enumerate((result.dir, tmp_path / 'trace.json')):
        answer = analyze('report', '--output', tmp_path / f'r{number}', path)
        assert answer['totals']['out_of_memory'] == 1
        screen = analyze('report', '--output', tmp_path / f'r{number}', path, format=None).out
        assert 'out of memory: 1 request was refused; the last one, of 1.0 TiB on device 1, with 1000 B in use and 2.0 KiB reserved' \
            in ' '.join(screen.split())
        assert analyze('report', '--device', '0', '--output', tmp_path / f'r{number}', path)['totals']['out_of_memory'] == 0
    assert analyze('report', '--output', tmp_path / 'none', quiet(tmp_path))['totals']['out_of_memory'] == 0


def quiet(tmp_path):
    kineto.Trace().stage('s', 0, 10).write(tmp_path / 'quiet.json')
    return tmp_path / 'quiet.json'


def test_memory_that_was_refused_of_a_pytorch_trace(tmp_path, analyze):
    """Filters select torch's own out-of-memory events by device and time."""
    t = kineto.Trace().stage('s', 0, 1000)
    for ts, size, device in ((100, 70, 0), (200, 80, 1), (900, 90, 0)):
        t.add('cpu_instant_event', '[OutOfMemory]', ts, ph='i', s='t', args={
            'Total Reserved': 5, 'Total Allocated': 4, 'Bytes': size, 'Device Id': device, 'Device Type': 1})
    t.add('cpu_instant_event', '[memory]', 300, ph='i', s='t', args={'Bytes': 7, 'Device Id': 0, 'Device Type': 1})
    t.write(tmp_path / 'a.json')

    def refused(*options):
        out = tmp_path / 'out'
        screen = analyze('report', *options, '--output', out, tmp_path / 'a.json', format=None).out
        count = analyze('report', *options, '--output', out, tmp_path / 'a.json')['totals']['out_of_memory']
        return count, ' '.join(screen.split()).partition('the last one, of ')[2].partition(' with')[0]
    assert refused() == (3, '90 B on device 0,')
    assert refused('--device', '1') == (1, '80 B on device 1,') and refused('--to', '0.0005') == (2, '80 B on device 1,')


def test_blocks_without_room_in_the_table_are_counted(play, records, analyze):
    """A block without room in the block table counts in no total, neither when allocated nor when freed."""
    result = play("""
import resource
push("s")
h(4096, 10)
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
for i in range(2, 50002): h(4096 * i, 10)
for i in range(2, 50002): h(4096 * i, -10)
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
pop()
""")
    blocks = records(result.dir, 'memory', rc=3)
    came = [r['bytes'] for r in blocks].count(10)
    lost = analyze('info', result.dir, rc=3)['rows'][0]['lost']
    assert 10000 < came <= 1 << 14 and lost == {'blocks': 50001 - came}
    assert [r['bytes'] for r in blocks].count(-10) == came - 1 and blocks[-1]['allocated_bytes'] == 10


def test_nested_stages_have_peaks_of_their_own(play, by_stage):
    """An inner stage starts with its own peak and does not change the outer one's, before, inside and after it."""
    result = play('h(1, 1000); push("outer"); h(2, 500); h(2, -500); push("inner"); h(3, 100); pop(); push("second");'
                  'h(4, 300); h(4, -300); pop(); pop(); push("after"); pop()')
    assert by_stage(result.dir) == {('inner', -1): (1000, 1100, 1100, 0, 100, 0), ('second', -1): (1100, 1100, 1400, 0, 300, 300),
                                    ('outer', -1): (1000, 1100, 1500, 0, 900, 800), ('after', -1): (1100, 1100, 1100, 0, 0, 0)}


def test_peak_inside_an_inner_stage_is_the_outer_ones_too(play, by_stage):
    result = play('push("first"); d(0, 1, 1, 1); push("outer"); push("inner"); d(0, 2, 7000, 8000); d(0, 2, -7000, -8000);'
                  'pop(); d(0, 3, 10, 20); pop(); pop()')
    assert by_stage(result.dir) == {('inner', 0): (1, 1, 7001, 8001, 7000, 7000), ('outer', 0): (1, 11, 7001, 8001, 7010, 7000),
                                    ('first', 0): (0, 11, 7001, 8001, 7011, 7000)}


def test_overlapping_ranges_in_any_order(play, by_stage):
    """Started ranges may end in the order in which they began, or on another thread."""
    result = play('h(1, 10); a = start("a"); h(2, 100); b = start("b"); h(2, -100); c_ = start("c"); h(3, 50); end(a);'
                  'h(4, 500); h(4, -500); elsewhere(end, b); h(5, 5); end(c_)')
    assert by_stage(result.dir) == {('a', -1): (10, 60, 110, 0, 150, 100), ('b', -1): (110, 60, 560, 0, 550, 600),
                                    ('c', -1): (10, 65, 560, 0, 555, 500)}


def test_allocations_of_other_threads_count(play, by_stage):
    """A stage counts what any thread allocates meanwhile; a thread that ends inside a stage loses nothing."""
    result = play('push("outer"); elsewhere(lambda: (push("theirs"), h(2, 40), pop(), push("never ended"), h(3, 2)));'
                  'push("inner"); h(4, 3); pop(); pop()')
    assert by_stage(result.dir) == {('theirs', -1): (0, 40, 40, 0, 40, 0), ('inner', -1): (42, 45, 45, 0, 3, 0),
                                    ('outer', -1): (0, 45, 45, 0, 45, 0)}


def test_devices_apart(play, by_stage):
    """Each device has its own numbers from its first report on, for stages opened before it too."""
    result = play('push("outer"); d(0, 1, 100, 200); push("inner"); d(2, 1, 10, 20); d(0, 2, 1, 0); pop(); pop();'
                  'push("after"); pop()')
    assert by_stage(result.dir) == {
        ('inner', 0): (100, 101, 101, 200, 1, 0), ('inner', 2): (0, 10, 10, 20, 10, 0),
        ('outer', 0): (0, 101, 101, 200, 101, 0), ('outer', 2): (0, 10, 10, 20, 10, 0),
        ('after', 0): (101, 101, 101, 200, 0, 0), ('after', 2): (10, 10, 10, 20, 0, 0)}


def test_deep_recursion(play, by_stage, records):
    """10,000 nested stages with one block each are as many records, and the outermost stage's peak is their sum."""
    result = play('def f(n):\n    push(f"s{n}"); h(n + 1, 10)\n    if n: f(n - 1)\n    pop()\n'
                  'sys.setrecursionlimit(20000); threading.stack_size(1 << 29); elsewhere(f, 9999)')
    found = by_stage(result.dir)
    assert len(found) == 10000
    assert found['s9999', -1] == (0, 100000, 100000, 0, 100000, 0)
    assert found['s0', -1] == (99990, 100000, 100000, 0, 10, 0)


def test_timing_json(play):
    """TeleFuser's keys, in MiB: the last exit's values and the highest peak of all calls, of the device that used most."""
    result = play('for n in (3, 1):\n    push("s"); h(1, 5 << 30); d(0, 1, n << 20, 4 << 20); d(0, 1, -1 << 19); pop()\n'
                  'push("none"); pop()')
    stages = timing(result.dir)
    assert stages['s']['memory'] == {'allocated_mb': 3, 'reserved_mb': 8, 'peak_allocated_mb': 3.5, 'peak_reserved_mb': 8,
                                     'device': 0}


def test_no_memory_without_reports(play):
    result = play('push("s"); pop()')
    assert 'memory' not in timing(result.dir)['s']


def test_originals(play, by_stage):
    """Originals get the same calls as without us, and the program's own profiler gets the same reports.

    That profiler sees no free of a block older than itself, and no totals with such blocks. Its reports count once."""
    script = ('def say(): print(*(c.c10_seen(i) for i in range(5)))\n'
              'push("s"); h(1, 10); say(); d(3, 1, 20, 40); say(); c.c10_enable(1); h(2, 5); say(); h(3, 7); h(1, -10); say();'
              'd(3, 1, -20); say(); h(2, -5); say(); c.c10_enable(0); h(3, -7); h(0, 0); say(); pop()')
    ours = play(script)
    assert ours.out == play(script, preload=False).out == play(script, env={'TFI_PROFILE_MEMORY': '0'}).out
    assert ours.out.split('\n')[2] == f'1 5 {0xff00} 5 2'
    assert by_stage(ours.dir) == {('s', -1): (0, 0, 22, 0, 22, 22), ('s', 3): (0, 0, 20, 40, 20, 20)}


def test_mapped_files(play, records, by_stage):
    """A tensor in a mapped file is reported with total 0; the totals of other blocks stay unchanged."""
    result = play('push("s"); h(1, 100); mapped(8192, 50); h(2, 10); mapped(8192, -50); h(1, -100); pop()')
    assert [(r['bytes'], r['allocated_bytes'], r['reserved_bytes']) for r in records(result.dir, 'memory')] == [
        (100, 100, 0), (50, 150, 0), (10, 160, 0), (-50, 110, 0), (-100, 10, 0)]
    assert by_stage(result.dir) == {('s', -1): (0, 10, 160, 0, 160, 150)}


@pytest.mark.parametrize('env', [{'TFI_PROFILE_MEMORY': '0'}, {'TFI_ACTIVITIES': 'cpu,gpu'},
                                 {'TELEFUSER_TORCH_PROFILER_PROFILE_MEMORY': 'False'}])
def test_switched_off(play, records, env):
    result = play('push("s"); h(1, 10); d(0, 1, 10, 10); pop()', env=env)
    assert records(result.dir, 'memory') == records(result.dir, 'stage_memory') == []
    assert len(records(result.dir, 'range_end')) == 1


def test_switched_on(play, records):
    result = play('push("s"); h(1, 10); pop()', env={'TFI_ACTIVITIES': 'cpu', 'TFI_PROFILE_MEMORY': '1'})
    assert len(records(result.dir, 'memory')) == 1


def test_asleep(play):
    """Allocations alone do not wake a process."""
    result = play('h(1, 10); d(0, 1, 10, 10)')
    assert not result.dir.exists()


def test_blocks_of_the_time_asleep(play, records):
    """Blocks allocated before the process woke are known when they are freed, and are in the total."""
    result = play('h(1, 10); h(2, 5); push("s"); h(1, -10); pop()')
    assert [(r['bytes'], r['allocated_bytes']) for r in records(result.dir, 'memory')] == [(-10, 5)]


def test_many_blocks(play, by_stage):
    """40,000 blocks, more than the first table holds, are freed oldest last on another thread; every size is known."""
    result = play('push("s")\nfor n in range(1, 40001): h(n * 64, n)\ndef free():\n    for n in range(40000, 0, -1): h(n * 64, -n)\n'
                  'elsewhere(free); pop()', env={'TFI_CAPTURE': 'delay=3600'})
    total = 40000 * 40001 // 2
    assert by_stage(result.dir) == {('s', -1): (0, 0, total, 0, total, total)}


def test_selection(play, records, by_stage):
    """Single blocks are recorded only in selected stages; sums by stage are recorded for all."""
    result = play('push("a"); h(1, 1); push("b"); h(2, 2); pop(); pop()', env={'ENABLE_PROFILER_NAMES': 'b'})
    assert [r['bytes'] for r in records(result.dir, 'memory')] == [2]
    assert by_stage(result.dir) == {('a', -1): (0, 3, 3, 0, 3, 0), ('b', -1): (1, 3, 3, 0, 2, 0)}


def test_recording_is_off(play, records, by_stage):
    """Sums by stage, like stage times, are recorded even while recording is off; single blocks are not."""
    result = play('push("a"); h(1, 1); push("b"); h(2, 2); pop(); pop()', env={'TFI_CAPTURE': 'delay=3600'})
    assert records(result.dir, 'memory') == []
    assert by_stage(result.dir) == {('a', -1): (0, 3, 3, 0, 3, 0), ('b', -1): (1, 3, 3, 0, 2, 0)}


@pytest.mark.parametrize('env, watched', [({}, 1), ({'TFI_PROFILE_MEMORY': '0'}, 0)])
def test_may_be_switched_on(play, records, tmp_path, env, watched):
    """A trigger may switch on mem later, so blocks are counted from the start, unless mem is refused."""
    env = {'TFI_ACTIVITIES': 'cpu', 'TFI_TRIGGER': f'file:{tmp_path}/trigger', **env}
    result = play('push("a"); h(1, 1); pop()', env=env)
    assert records(result.dir, 'memory') == []
    assert len(records(result.dir, 'stage_memory')) == watched


def test_fork(play, by_stage, records):
    """A forked child counts for itself from its first report on, without its parent's open stages."""
    result = play('push("parent"); h(1, 100); child = os.fork()\nif not child:\n    push("child"); h(2, 10); pop(); os._exit(0)\n'
                  'os.waitpid(child, 0); h(3, 1000); pop()')
    assert by_stage(result.dir) == {('child', -1): (100, 110, 110, 0, 10, 0), ('parent', -1): (0, 1100, 1100, 0, 1100, 0)}
    assert len({r['pid'] for r in records(result.dir, 'memory')}) == 2


# ---- on torch ----

# Each stage is an NVTX range for us, and a range of the same name with a colon for torch.profiler.
TORCH = """
import json, sys, torch; torch._lazy_modules.discard('_inductor')
from torch.profiler import profile, record_function, ProfilerActivity
from contextlib import contextmanager
nvtx = torch.cuda.nvtx
@contextmanager
def stage(name):
    with record_function(name + ':'):
        nvtx.range_push(name)
        yield
        nvtx.range_pop()
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
kept = []
def work():
    with stage('whole'):
        with stage('forward'):
            loss = model(torch.randn(32, 64)).square().mean()
        with stage('backward'):
            loss.backward()
        with stage('spike'):
            big = torch.ones(1 << 20)
            with stage('inside'):
                kept.append(torch.zeros(300) + 1)
            del big
        with stage('nothing'):
            pass
        del loss
work()
for path, profile_memory in zip(sys.argv[1:], (False, True)):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=profile_memory) as p:
        work()
    p.export_chrome_trace(path)
    print(len(p.key_averages()))
"""


@pytest.fixture(scope='module')
def on_torch(lib, python, forked, tmp_path_factory):
    """on_torch(watched) -> out, err, dir, and the events of a profile with memory and of one without; runs once."""
    @functools.cache
    def on_torch(watched):
        place = tmp_path_factory.mktemp('torch')
        env = {**clean_environment(), 'TFI_OUTPUT_DIR': str(place / 'run'), **({'LD_PRELOAD': str(lib)} if watched else {})}
        paths = [place / 'without.json', place / 'with.json']
        result = execute([python, '-c', TORCH, *paths], env, place) if watched else forked(['python', '-c', TORCH, *paths])
        assert result.rc == 0 and 'tfinject' not in result.err, result.err
        result.without, result.events = (json.loads(path.read_text())['traceEvents'] for path in paths)
        result.dir = place / 'run'
        return result
    return on_torch


def reports(events):
    """(time, bytes, total afterwards) of every block in torch's trace."""
    return sorted((e['ts'], e['args']['Bytes'], e['args']['Total Allocated']) for e in events if e['name'] == '[memory]')


def torch_says(events):
    """{stage: (after, peak, allocated, freed)} from the blocks of torch's trace between the edges of each annotation.

    After and peak are relative to the memory in use at the beginning."""
    blocks, says = reports(events), {}
    for e in events:
        if e.get('cat') != 'user_annotation' or not e['name'].endswith(':'):
            continue
        inside = [b for b in blocks if e['ts'] <= b[0] <= e['ts'] + e['dur']]
        totals = [0] + [b[2] - (inside[0][2] - inside[0][1]) for b in inside]
        says[e['name'][:-1]] = (totals[-1], max(totals), sum(b[1] for b in inside if b[1] > 0),
                                -sum(b[1] for b in inside if b[1] < 0))
    return says


def test_bytes_by_stage_are_those_of_torch_profiler(on_torch, records):
    """After, peak, allocated and freed of every stage equal torch.profiler's, for nested stages too.

    torch.profiler sees one thread only, and counts no block older than itself."""
    result = on_torch(True)
    names = {r['id']: r['name'] for r in records(result.dir, 'range_end')}
    ours = {}
    for r in records(result.dir, 'stage_memory'):  # the last call of each is the one profiled with memory
        before = r['allocated_before_bytes']
        ours[names[r['id']]] = (r['allocated_after_bytes'] - before, r['allocated_peak_bytes'] - before,
                                r['allocated_bytes'], r['freed_bytes'])
        assert before > 60000, 'the model must be allocated before'
    says = torch_says(result.events)
    assert len(says) == 6 and says['spike'][1] >= 4 << 20 and says['whole'][2] > says['forward'][2] > 0
    assert {name: bytes_of for name, bytes_of in ours.items() if not name.endswith(':')} == says
    assert {name[:-1]: bytes_of for name, bytes_of in ours.items() if name.endswith(':')} == says, "torch's own ranges have other numbers"
    assert len(records(result.dir, 'memory')) > len(reports(result.events)) > 50


def test_the_users_profile(on_torch):
    """The user's own profile has the same blocks and totals as without the library.

    Without profile_memory it has none. Messages about blocks of unknown size do not become more either."""
    plain, ours = on_torch(False), on_torch(True)
    assert [b[1:] for b in reports(ours.events)] == [b[1:] for b in reports(plain.events)]
    assert len(reports(plain.events)) > 50
    assert plain.out == ours.out and plain.err.count('unknown size') == ours.err.count('unknown size')
    assert reports(ours.without) == []


def test_telefusers_nested_peaks(run, python, analyze):
    """A TeleFuser context inside another one has its own peak, and the outer one keeps its own. All answers have one peak.

    Nothing is in use before the first context, and its snapshot is there all the same."""
    result = run([python, '-W', 'ignore', '-c', '''
import sys
from telefuser.utils import profiler
import torch
with profiler.ProfilingContext('outer', capture_memory=True) as outer:
    big = torch.ones(3 << 18)
    del big
    kept = torch.ones(1 << 18)
    with profiler.ProfilingContext('inner', capture_memory=True) as inner:
        torch.ones(1 << 18)
for c in (outer, inner):
    m = c._memory_snapshot
    print('said', m.allocated_mb, m.reserved_mb, m.peak_allocated_mb, m.peak_reserved_mb, file=sys.stderr)  # TeleFuser's thread writes to stdout
'''], {'TELEFUSER_LOG_LEVEL': 'INFO'})
    assert result.rc == 0, result.err
    assert [line for line in result.err.splitlines() if line.startswith('said')] == ['said 1.0 1.0 3.0 3.0', 'said 1.0 1.0 2.0 2.0']
    assert re.findall(r'\[Timing\] (\w+): .* ms, memory: (.*)', result.err + result.out) == [
        ('inner', '1/1 MB (peak: 2/2 MB)'), ('outer', '1/1 MB (peak: 3/3 MB)')]
    files = [json.loads((result.dir / 'timing.json').read_text()), json.loads(next(result.dir.glob('rank*.timing.json')).read_text())]
    analyze('report', result.dir)
    files.append(json.loads((result.dir / 'timing.json').read_text()))
    assert files[2]['writer'].startswith('tfanalyze')
    for file in files:
        memory = {stage: file['stages'][stage]['memory'] for stage in ('outer', 'inner')}
        assert {s: (m['reserved_mb'], m['peak_allocated_mb'], m['peak_reserved_mb']) for s, m in memory.items()} == {
            'outer': (1, 3, 3), 'inner': (1, 2, 2)}
    snapshots = files[0]['memory']['snapshots']
    assert list(snapshots) == ['before_outer', 'before_inner', 'after_inner', 'after_outer'] and snapshots['before_outer']['allocated_mb'] == 0
    rows = {r['stage']: r['peak_allocated_bytes'] for r in analyze('stages', result.dir)['rows']}
    assert (rows['outer'], rows['inner']) == (3 << 20, 2 << 20)
