"""test_silence - the Python frames of threads that record nothing (TFI_HANG_S), for every CPython on this machine.

The scripts use only ctypes. A script tells where each of its threads stands, from inside the thread and on the very line
on which it stops; the trace is read while the script runs, and again after SIGKILL.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

import pythons
from conftest import COMMAND_TIMEOUT, clean_environment

pytestmark = pytest.mark.slow  # the threads must be silent for a second
by_version = pythons.by_version()
STILL, AGREED, OUTER, TORN, EMPTY, FOREIGN, LAYOUT, REFUSED, INVALID = range(1, 10)
CUT = 1
KEPT = 256  # frames of a stack

HEAD = '''
import ctypes, json, os, socket, sys, threading, time
t = ctypes.CDLL(None)
voice = threading.Lock()
def said(name):
    frame, found = sys._getframe(1), []
    while frame:
        code = frame.f_code
        found.append([getattr(code, 'co_qualname', code.co_name), code.co_filename, str(frame.f_lineno)])
        frame = frame.f_back
    with voice: # a long line is several writes to a pipe
        os.write(1, (json.dumps([name, t.gettid(), found]) + '\\n').encode())
def recorded():
    t.tfi_range_push(b'recorded'), t.tfi_range_pop()
def start(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()
'''


class Running:
    """A script that runs under the library: what its threads said, and the silence records of its trace."""

    def __init__(self, process, directory, analyze_now):
        self.process, self.directory, self.analyze_now = process, directory, analyze_now

    def said(self, count):
        """{name: (tid, frames)} of the next `count` lines."""
        lines = [json.loads(self.process.stdout.readline()) for _ in range(count)]
        return {name: (tid, [tuple(f) for f in frames]) for name, tid, frames in lines}

    def records(self):
        rows = self.analyze_now(self.directory)
        return [dict(row['values'], flags=int(row['values']['flags'], 16), frames=frames_of(row['values']['stack']), time=row['time_us'], pid=row['pid'])
                for row in rows if row['kind'] == 'silence']

    def wait_for(self, wanted):
        """The records, as soon as `wanted` is true of them."""
        end = time.monotonic() + COMMAND_TIMEOUT
        while time.monotonic() < end:
            records = self.records()
            if wanted(records):
                return records
            assert self.process.poll() is None, (self.process.returncode, self.process.stderr.read())
            time.sleep(0.2)
        raise AssertionError(records)

    def wait_for_place(self, frames):
        """The records, once the last one has these frames; a thread may have been held up and read on its way there."""
        return self.wait_for(lambda records: records and records[-1]['frames'] == frames)

    def kill(self):
        self.process.kill()
        self.process.wait()


def frames_of(stack):
    return [tuple(line.split('\t')) for line in stack.split('\n')] if stack else []


@pytest.fixture
def start(tmp_path, lib, testlib, tfanalyze):
    """start(text, python, env={}, test=False) runs the text as a script; it is killed at the end of the test."""
    started = []

    def analyze_now(directory):
        result = subprocess.run([tfanalyze, 'dump', directory, '--format', 'json'], capture_output=True, env=clean_environment())
        return json.loads(result.stdout)['rows'] if result.returncode in (0, 3) else []

    def start(text, python=sys.executable, env=None, test=False, arguments=()):
        script, directory = tmp_path / 'script.py', tmp_path / f'run{len(started)}'
        script.write_text(HEAD + text)
        full = {**clean_environment(), 'LD_PRELOAD': str(testlib if test else lib), 'TFI_OUTPUT_DIR': str(directory),
                'TFI_HANG_S': '1', 'PYTHONDONTWRITEBYTECODE': '1', **(env or {})}
        process = subprocess.Popen([python, *arguments, script], env=full, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        started.append(process)
        return Running(process, directory, analyze_now)
    yield start
    for process in started:
        process.kill()
        process.communicate()


STOPS = '''
class Sleeper:
    def sleep(self):
        said('main'), time.sleep(600)
def generator():
    recorded()
    yield (said('generator'), lock.acquire())
def take():
    for _ in generator(): pass
async def outer():
    await inner()
async def inner():
    recorded(), said('coroutine'), lock.acquire()
def drive():
    outer().send(None)
def receive(s):
    recorded()
    (lambda: (said('lambda'), s.recv(1)))()
def deep(n):
    if n: return deep(n - 1)
    recorded(), said('deep'), threading.Event().wait()
def compiled(name):
    exec(compile('def größe_字():\\n\\n    recorded(), said(name), lock.acquire()\\ngröße_字()', name, 'exec'), {**globals(), 'name': name})
def unrecorded():
    said('unrecorded'), lock.acquire()
lock = threading.Lock()
lock.acquire()
pair = socket.socketpair()
for function in take, drive, unrecorded: start(function)
start(receive, pair[0]), start(deep, 700)
start(compiled, 'größe_字.py'), start(compiled, 'not\\udcff\\udc80utf8.py'), start(compiled, 'a\\ttab')
t.tfi_range_push(b'open')
Sleeper().sleep()
'''


def shown(frame):
    """A frame as a terminal shows it: a tab is a separator of ours, and a lone surrogate is not valid."""
    return tuple(re.sub('[\ud800-\udfff]+', '?', text.replace('\t', ' ')) for text in frame)


@by_version
def test_where_threads_stand(start, python):
    """In C calls, generators, coroutines, lambdas, deep recursion, code of exec and files with strange names; live, and
    after SIGKILL."""
    script = start(STOPS, python.path, {'PYTHONIOENCODING': 'utf-8'})
    said = script.said(9)

    def all_stand(records):  # a thread may have been read before it came to its place
        last = {record['tid']: record for record in records}
        here = [last[tid]['frames'] for name, (tid, _) in said.items() if name != 'unrecorded' and tid in last]
        there = [frames[0][0] for name, (_, frames) in said.items() if name != 'unrecorded']
        return (len(here) == len(there) and all(any(f[0] == name for f in frames) for frames, name in zip(here, there)) and
                any(r['thread'] == 0 and r['frames'] and r['frames'][0][0] == 'unrecorded' for r in records))
    records = script.wait_for(all_stand)
    script.kill()
    after = script.records()
    assert all(record in after for record in records)
    by_thread = {record['tid']: record for record in records}
    for name, (tid, frames) in said.items():
        if name == 'unrecorded':
            found = next(r for r in records if r['thread'] == 0 and r['frames'][0][0] == 'unrecorded')
            assert found['tid'] == (tid if python.version >= (3, 11) else 0)
        else:
            found = by_thread[tid]
            assert found['thread'] > 0 and found['reading'] in (STILL, AGREED)
        assert found['flags'] == (CUT if len(frames) > KEPT else 0)
        frames = [shown(f) for f in frames]
        if name == 'deep':  # the innermost are threading's own frames
            inner = [f[0] for f in found['frames']].index('deep')
            assert 0 < inner < 5 and len(found['frames']) == KEPT
            assert found['frames'][inner:] == frames[:KEPT - inner]
        else:
            assert [re.sub('\ufffd+', '?', '\t'.join(f)) for f in found['frames']] == ['\t'.join(f) for f in frames]


# ---- a thread that runs ----

# Two families of functions. Each function is called by the one before it in its family, from one of two lines, and the
# outermost by the loop. A frame of one family above one of the other, a missing one or a wrong line is a torn chain.
DEPTH = 24
HOT = ''.join(f'''
def {family}{i}(n):
    if n & {1 << i % 4}:
        {family}{i + 1}(n)
    else: {family}{i + 1}(n)
''' for family in 'ab' for i in range(DEPTH)) + ''.join(f'''
def {family}{DEPTH}(n):
    n += 1
    return n
''' for family in 'ab') + '''
def loop():
    n = 0
    while True:
        a0(n)
        b0(n)
        n += 1
cpus = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, cpus[-1:])  # the background thread stays there
recorded(), time.sleep(0.1)
os.sched_setaffinity(0, cpus[:1])
os.write(1, b'[0, 0, []]\\n')
loop()
'''


def is_right(frames, lines):
    """True if the frames, the innermost first, can stand like this; `lines` has each function's first line."""
    outer = list(reversed(frames))
    if outer[:2] != [f for f in outer if f[0] in ('<module>', 'loop')]:
        return False
    for depth, (name, _, line) in enumerate(outer[2:]):
        first = 0 if depth == len(outer) - 3 else 1  # the innermost may be at its beginning
        if name != outer[2][0][0] + str(depth) or not first <= int(line) - lines[name] <= 3:
            return False
    caller = lines['loop'] + (3 if outer[2:] and outer[2][0] == 'a0' else 4)
    return len(outer) < 3 or int(outer[1][2]) == caller


@pytest.mark.parametrize('env', [{}, {'HANG_UNTIMED': '1'}], ids=['timed', 'untimed'])
@by_version
def test_torn_chains(start, python, env):
    """A thread runs Python code while its frames are read again and again: no record has a wrong frame. Without the
    thread's processor time there is no proof that it stood still, and only frames that stay are kept."""
    script = start(HOT, python.path, {'HANG_MS': '5', **env}, test=True)
    script.said(1)
    records = script.wait_for(lambda records: sum(len(r['frames']) > 0 for r in records) >= (3 if env else 30))
    script.kill()
    lines = {m[1]: n for n, line in enumerate((HEAD + HOT).split('\n'), 1) if (m := re.match(r'def (\w+)', line))}
    wrong = [r for r in records if r['frames'] and not is_right(r['frames'], lines)]
    assert not wrong, (wrong[0]['reading'], wrong[0]['frames'])
    assert {r['reading'] for r in records} <= ({AGREED, OUTER, TORN} if env else {STILL, AGREED, OUTER, TORN})


SPINNING = '''
def spin():
    while True: pass
def call_spin():
    recorded(), said('spin')
    spin()
call_spin()
'''


@by_version
def test_a_busy_loop(start, python):
    """A loop of Python code: the record has the function that loops, with one of its lines, and all callers."""
    script = start(SPINNING, python.path)
    (_, frames), = script.said(1).values()
    line = (HEAD + SPINNING).split('\n').index('    while True: pass') + 1
    spin = [('spin', frames[0][1], str(line)), ('call_spin', frames[0][1], str(int(frames[0][2]) + 1)), *frames[1:]]
    assert script.wait_for_place(spin)[-1]['reading'] in (STILL, AGREED, OUTER)


# ---- when ----

def test_again_when_the_frames_change(start):
    """One record for each place, not one for each second."""
    script = start('''
def first():
    said('first'), os.read(0, 1)
def second():
    said('second'), time.sleep(600)
recorded(), first(), second()
''')
    first = script.said(1)['first'][1]
    there = script.wait_for_place(first)
    time.sleep(3)
    assert script.records() == there
    script.process.stdin.write(b'x')
    script.process.stdin.flush()
    second = script.said(1)['second'][1]
    records = script.wait_for_place(second)
    assert [r['frames'] for r in records].count(second) == 1 and records[:len(there)] == there
    assert there[-1]['since'] == records[-1]['since'] and there[-1]['thread'] == records[-1]['thread']


ACTIVE = '''
os.write(1, b'[0, 0, []]\\n')
while True:
    recorded(), time.sleep(0.01)
'''


def test_a_process_that_was_stopped(start):
    """A process that was stopped for longer than TFI_HANG_S was not silent."""
    script = start(ACTIVE, env={'TFI_HANG_S': '3'})
    script.said(1)
    time.sleep(1)
    script.process.send_signal(signal.SIGSTOP)
    time.sleep(7)
    script.process.send_signal(signal.SIGCONT)
    time.sleep(1)
    assert script.records() == []


THREADS = '''
def tasks():
    return sorted(open('/proc/self/task/%s/comm' % task).read().strip() for task in os.listdir('/proc/self/task'))
before = tasks()
recorded()
time.sleep(0.2)
while os.environ['TFI_HANG_S'] != '0' and 'tfinject' not in tasks(): time.sleep(0.01) # it names itself
os.write(1, (json.dumps(['', 0, [before, tasks()]]) + '\\n').encode())
time.sleep(600)
'''


@pytest.mark.parametrize('seconds', ['0', '1'])
def test_threads_of_a_process(start, seconds):
    """A process that has recorded nothing has no thread of ours; with TFI_HANG_S=0 and TFI_SAMPLE_HZ=0 a first record starts none."""
    script = start(THREADS, env={'TFI_HANG_S': seconds, 'TFI_SAMPLE_HZ': '0'})
    before, after = script.said(1)[''][1]
    assert len(before) == 1 and (after.count('tfinject'), len(after)) == ((0, 1) if seconds == '0' else (1, 2))


FORKED = '''
import warnings
warnings.simplefilter('always')
def stay():
    said('main'), time.sleep(600)
os.register_at_fork(after_in_parent=lambda: [int() for _ in range(9)])
recorded()
time.sleep(0.2)
for _ in range(20):
    recorded() # otherwise the loop itself is a silence on a busy machine
    pid = os.fork()
    if not pid: os._exit(0)
    os.waitpid(pid, 0)
stay()
'''


@by_version
def test_after_a_fork(start, python):
    """A fork ends the background thread; it runs again afterwards, even if the thread that forked last records nothing more,
    and Python does not warn of a second thread."""
    script = start(FORKED, python.path, {'TFI_HANG_S': '2'})
    frames = script.said(1)['main'][1]
    script.wait_for_place(frames)
    script.kill()
    assert script.process.stderr.read() == b''


CHILD = '''
def child():
    recorded(), said('child'), time.sleep(600)
def parent():
    said('parent'), os.waitpid(pid, 0)
recorded()
pid = os.fork()
if not pid: child()
parent()
'''


def test_a_forked_child(start):
    """Parent and child each write what their threads do."""
    script = start(CHILD)
    said = script.said(2)
    script.wait_for(lambda records: {r['tid']: r['frames'] for r in records} == {tid: frames for tid, frames in said.values()})
    os.kill(said['child'][0], signal.SIGKILL)


# ---- threads that cannot be read ----

@pythons.by_version((3, 12))
def test_subinterpreters(start, python):
    """The frames of the inner interpreter come first, then those of the outer one that called it."""
    if not python:
        return
    script = start('''
import %s as interpreters
def inner():
    said('outer'), interpreters.run_string(interpreters.create(), 'def sub():\\n\\n    time.sleep(600)\\nimport time\\nsub()')
recorded(), inner()
''' % ('_interpreters' if python.version >= (3, 13) else '_xxsubinterpreters'), python.path)
    frames = script.said(1)['outer'][1]
    found = script.wait_for(lambda records: records and records[-1]['frames'][2:] == frames)[-1]['frames']
    assert [(f[0], f[2]) for f in found[:2]] == [('sub', '3'), ('<module>', '5')]


FOREIGN_THREAD = '''
@ctypes.CFUNCTYPE(ctypes.c_int)
def inside():
    recorded(), said('inside')
    return 0
recorded()
ctypes.CDLL(%r).frames_thread(inside)
said('main'), time.sleep(600)
'''


@by_version
def test_a_thread_of_native_code(start, victim, python):
    """A native thread that has called Python before and does so no more: the interpreter does not know it."""
    script = start(FOREIGN_THREAD % str(victim('libframes.so')), python.path)
    said = script.said(2)
    tid, frames = said['main']
    there = {tid: (STILL, frames), said['inside'][0]: (FOREIGN, [])}
    script.wait_for(lambda records: {r['tid']: (r['reading'], r['frames']) for r in records} == there)


REFUSING = '''
import struct
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER, PROCESS_VM_READV, EPERM = 38, 22, 2, 310, 1
LOAD, JUMP_EQUAL, RETURN, ALLOW, ERRNO = 0x20, 0x15, 0x06, 0x7fff0000, 0x50000
rows = [(LOAD, 0, 0, 0), (JUMP_EQUAL, 0, 1, PROCESS_VM_READV), (RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *row) for row in rows))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(rows), ctypes.addressof(code)))
assert t.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
assert t.prctl(PR_SET_SECCOMP, FILTER, program, 0, 0) == 0
recorded(), said('main'), time.sleep(600)
'''


def test_where_the_kernel_refuses(start):
    """Under a seccomp filter the record says that the frames could not be read."""
    script = start(REFUSING)
    tid, _ = script.said(1)['main']
    record = script.wait_for(bool)[0]
    assert (record['tid'], record['reading'], record['frames']) == (tid, REFUSED, [])
