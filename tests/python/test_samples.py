"""test_samples - sampled Python stacks (TFI_SAMPLE_HZ) and processor times of stages, on a program that knows its calls and clocks."""

import json

import pytest

import pythons
import tfr
from conftest import without_start

pytestmark = pytest.mark.slow  # the program must run for a second
by_version = pythons.by_version()
UNREADABLE, NO_PYTHON, RUNNABLE, RAN = 4, 8, 256, 1024

PROGRAM = '''
import ctypes, json, threading, time
t = ctypes.CDLL(None)
def count(n):
    x = 1
    for i in range(n): x = x * i & 255
    return x
def generate(n):
    for i in range(n): yield count(30)
def recurse(n):
    if n: return recurse(n - 1)
    return count(2000)
def work():
    recurse(12)
    for x in generate(60): x += 1
    return max([1], key=lambda x: count(500))
def wait(lock):
    lock.acquire()
lock = threading.Lock()
lock.acquire()
waiter = threading.Thread(target=wait, args=(lock,))
waiter.start()
outer = time.thread_time()
t.tfi_range_push(b'work')
inner = time.thread_time()
while time.thread_time() - inner < 1: work()
inner = time.thread_time() - inner
t.tfi_range_pop()
outer = time.thread_time() - outer
lock.release()
waiter.join()
print(json.dumps([inner, outer]))
'''
# The function that each line calls; a line without an entry calls none.
CALLS = {8: 'count', 10: 'recurse', 11: 'count', 13: 'recurse', 14: 'generate', 15: '<lambda>', 25: 'work'}
LINES = {'count': (3, 6), 'generate': (7, 8), 'recurse': (9, 11), 'work': (12, 15), '<lambda>': (15, 15), 'wait': (16, 17)}


def only_trace(directory):
    path, = directory.glob('*.tfr')
    return path


def impossible(frames, script):
    """What no moment of the program has; None if there is nothing."""
    frames = [(name.split('.')[-1], file, int(line)) for name, file, line in frames]
    for callee, (name, file, line) in zip([None] + frames, frames):
        if file != script:
            continue
        least, most = LINES.get(name, (1, 99))
        if line and not least <= line <= most:  # some instructions have none
            return f'{name} has no line {line}'
        # the lambda is on the line that calls it
        wanted = 'count' if name == '<lambda>' else CALLS.get(line)
        if callee and callee[1] == script and callee[0] != wanted:
            return f'line {line} of {name} does not call {callee[0]}'
    is_whole = frames[-1][0] in ('<module>', '_bootstrap') or all(file != script for _, file, _ in frames)  # at exit C code calls others
    return None if is_whole else f'{frames[-1][0]} has a caller'


@by_version
def test_a_program_that_knows_its_calls(python, run, analyze, tmp_path):
    script = tmp_path / 'program.py'
    script.write_text(PROGRAM.lstrip('\n'))
    done = run([python.path, script], env={'TFI_SAMPLE_HZ': 1000})
    assert done.rc == 0 and not done.err, done.err
    inner, outer = json.loads(done.out)
    trace = tfr.read(only_trace(done.dir))
    samples = [r.values for r in trace.records if r.kind == 'sample']
    stacks = {s['stack'] for s in samples if s['stack']}
    for stack in stacks:
        frames = tfr.stack_of(trace.strings, stack)
        assert not impossible(frames, str(script)), frames
    assert all(s['stack'] or s['flags'] & (UNREADABLE | NO_PYTHON) for s in samples)
    assert all(s['looks'] == 1 or not s['cpu'] for s in samples)
    check_times(samples, trace)
    check_answers(analyze, done.dir, str(script), inner, outer, max(s['cpu'] for s in samples) / 1000, is_even(samples, trace))


CHURN = '''
import json, threading, time
began = time.thread_time()
while time.thread_time() - began < 1.2:  # a script is recorded that runs for a second
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
print(json.dumps(time.thread_time()))
'''


@by_version
def test_beside_threads_that_come_and_go(python, run, tmp_path):
    """The list of threads changes while it is read. The main thread still has its periods one after the other, each with its
    own processor time."""
    done = run([python.path, '-c', CHURN], env={'TFI_SAMPLE_HZ': 1000})
    assert done.rc == 0 and not done.err, done.err
    trace = tfr.read(only_trace(done.dir))
    own = [r.values for r in trace.records if r.kind == 'sample' and r.values['tid'] == int(trace.info['pid'])]
    breaks = [(a, b) for a, b in zip(own, own[1:]) if a['time'] + a['duration'] != b['time']]
    assert len(own) > 50 and len(breaks) <= 2, breaks
    assert sum(s['cpu'] for s in own) <= 1.2e9 * json.loads(done.out)  # the end of the interpreter is more


def check_times(samples, trace):
    """The periods of a thread follow each other; a thread that waits for a lock uses no processor and is in futex."""
    main = int(trace.info['pid'])
    for tid in {s['tid'] for s in samples}:
        own = [s for s in samples if s['tid'] == tid]
        assert all(a['time'] + a['duration'] == b['time'] for a, b in zip(own, own[1:]))
    waits = [s for s in samples if s['tid'] != main and not s['cpu'] and not s['flags'] & (RUNNABLE | RAN)]
    assert waits and {s['call'] for s in waits} == {202 + 1}


def is_even(samples, trace):
    """True if no period is so long that what its end found, which stands for all of it, changes the shares of functions."""
    clock = tfr.Clock(trace.records)
    return all(float(clock(s['time'] + s['duration']) - clock(s['time'])) < 2e8 for s in samples if s['tid'] == int(trace.info['pid']))


def check_answers(analyze, directory, script, inner, outer, period, even):
    """`even`: the machine held neither the program nor its sampler up, so the answers also have the program's shares of time."""
    stage, = without_start(analyze('stages', directory)['rows'])
    assert inner * 1e6 <= stage['cpu_us'] <= outer * 1e6
    answer = analyze('hotspots', directory)
    rows = {r['name'].split('.')[-1]: r for r in answer['rows'] if r['file'] in (script, None)}
    if even:
        assert answer['rows'][0]['name'] == 'count' and rows['wait']['pct'] < 1
        assert rows['work']['total_us'] >= rows['recurse']['total_us']
    own = rows['count']
    assert (own['file'], own['stage']) == (script, 'work') and own['line'] in range(3, 7) and own['wall_us'] == own['total_us']
    assert all(r['cpu_us'] + r['waiting_us'] >= r['wall_us'] - 1 and r['waiting_us'] <= r['wall_us'] for r in rows.values())
    assert rows['wait']['waits_in'] == 'futex'
    frames = [p['frame'].split(': ')[-1] for p in answer['totals']['paths']]
    assert frames[0] == '<module>' and {'work', 'count'} <= {f.split('.')[-1] for f in frames}
    lines = analyze('hotspots', directory, '--by', 'line')['rows']
    assert sum(r['wall_us'] for r in lines if r['name'] == 'count') == pytest.approx(own['wall_us'])
    stages = {r['name']: r for r in analyze('hotspots', directory, '--by', 'stage')['rows']}
    assert stages['work']['cpu_us'] <= outer * 1e6 + period  # the period in which it begins is its own
    for metric, key in (('wall', 'wall_us'), ('cpu', 'cpu_us'), ('waiting', 'waiting_us')):
        flames = analyze('stacks', directory, '--metric', metric, format=None).out.splitlines()
        total = sum(int(line.rsplit(' ', 1)[1]) for line in flames)
        assert total <= sum(r[key] for r in answer['rows']) <= total + len(flames) + sum(r[key] for r in answer['rows'] if not r['file'])


FORKING = """
import ctypes, os, time
t = ctypes.CDLL(None)
def before():
    while time.monotonic() < begin + 1: pass
def after():
    while time.monotonic() < begin + 2.5: pass
t.tfi_range_push(b's')
begin = time.monotonic()
before()
if not os.fork():
    os._exit(0)
os.wait()
begin = time.monotonic()
after()
t.tfi_range_pop()
"""


@by_version
def test_samples_after_a_fork(python, run, analyze):
    """A fork ends the sampler; the background thread begins it anew."""
    done = run([python.path, '-c', FORKING], env={'TFI_SAMPLE_HZ': 200})
    assert done.rc == 0 and not done.err, done.err
    wall = {row['name']: row['wall_us'] for row in analyze('hotspots', done.dir)['rows']}
    assert wall['before'] > 1e5 and wall['after'] > 5e5


def test_no_samples_where_none_are_wanted(python, run, analyze, tmp_path):
    script = "import ctypes, time; t = ctypes.CDLL(None); t.tfi_range_push(b's'); time.sleep(.2); t.tfi_range_pop()"
    for i, env in enumerate(({'TFI_SAMPLE_HZ': 0}, {'TFI_SAMPLE_HZ': 1000, 'ENABLE_PROFILER_NAMES': ''}, {'TFI_SAMPLE_HZ': 1000, 'ENABLE_PROFILER_NAMES': 'other'})):
        done = run([python, '-c', script], env={**env, 'TFI_OUTPUT_DIR': tmp_path / str(i)})
        assert done.rc == 0
        assert not [r for r in tfr.read(only_trace(done.dir)).records if r.kind == 'sample']
