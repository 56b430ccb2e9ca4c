"""test_aborted - the Python frames that abort() leaves, and that a process dies by it as it does without the library.

A script tells where its threads stand before one of them calls abort(): os.abort(), or libc's function through ctypes, which
also stands for a C++ exception that nothing catches. Python's fault handler prints the same with the library and without.
"""

import json
import re
import signal
import subprocess

import pytest

import pythons
from conftest import BUILD, CLOSING, COMMAND_TIMEOUT, clean_environment
from test_silence import FOREIGN, STILL, frames_of, shown

by_version = pythons.by_version()
ABORT = 2  # flag of a silence record

HEAD = '''
import ctypes, faulthandler, json, os, signal, sys, threading, time
t = ctypes.CDLL(None)
def said(name):
    frame, found = sys._getframe(1), []
    while frame:
        code = frame.f_code
        found.append([getattr(code, 'co_qualname', code.co_name), code.co_filename, str(frame.f_lineno)])
        frame = frame.f_back
    os.write(1, (json.dumps([name, t.gettid(), found]) + '\\n').encode())
def record():
    if hasattr(t, 'tfi_range_push'): t.tfi_range_push(b'recorded'), t.tfi_range_pop()
stop, standing = threading.Lock(), threading.Barrier(3)
stop.acquire()
def sleeps(task):
    try: return open('/proc/self/task/%s/stat' % task).read().rpartition(')')[2].split()[0] == 'S'
    except OSError: return True
def settle():
    # A read of /proc lends out the interpreter's lock, and a thread that waits for that lock then wakes. So threads that sleep
    # in many readings stand where they stay.
    others, quiet = set(os.listdir('/proc/self/task')) - {str(t.gettid())}, 0
    while quiet < 5: quiet = quiet + 1 if all([sleeps(task) for task in others]) else 0
def quiet():
    standing.wait(), said('quiet'), ready.release(), stop.acquire()
def recorded():
    record(), standing.wait(), said('recorded'), ready.release(), stop.acquire()
ready = threading.Semaphore(0)
def begin():
    record()
    for function in quiet, recorded: threading.Thread(target=function, daemon=True).start()
    standing.wait(), ready.acquire(), ready.acquire(), settle()
'''

# name: how the process ends; `here` is the line of the thread that calls abort()
ENDS = {
    'python': '(said("aborts"), os.abort())  # here\n',
    'libc': '(said("aborts"), t.abort())  # here\n',
    'fault handler': 'faulthandler.enable()\n(said("aborts"), os.abort())  # here\n',
    'handler that returns': 'signal.signal(signal.SIGABRT, lambda *a: None)\n(said("aborts"), t.abort())  # here\n',
    'in a handler': 't.signal(signal.SIGSEGV, ctypes.cast(t.abort, ctypes.c_void_p))\n(said("aborts"), t.strlen(1))  # here\n',
    # the size of the last chunk, from which malloc() takes memory, is overwritten
    'damaged heap': '''t.malloc.restype = ctypes.c_void_p
t.malloc_usable_size.argtypes = [ctypes.c_void_p]
chunk = t.malloc(1 << 16)
end = chunk + t.malloc_usable_size(chunk)
(said("aborts"), ctypes.memset(end, 0xff, 8), t.abort())  # here
''',
    'thread': '''def last():
    record(), settle(), said("aborts"), t.abort()  # here
threading.Thread(target=last).start()
said("main"), stop.acquire()
''',
    'at once': '''def each():
    go.acquire(), go.release(), t.abort()
go = threading.Lock()
go.acquire()
for i in range(7): threading.Thread(target=each).start()
settle()
(said("aborts"), go.release(), t.abort())  # here
''',
    # 8 KiB, with a page below that nobody may touch
    'small stack': '''class Stack(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('flags', ctypes.c_int), ('size', ctypes.c_size_t)]
class Action(ctypes.Structure): _fields_ = [('handler', ctypes.c_void_p), ('mask', ctypes.c_uint64 * 16), ('flags', ctypes.c_int), ('r', ctypes.c_void_p)]
t.mmap.restype = ctypes.c_void_p
low = t.mmap(None, ctypes.c_size_t(3 * 4096), 3, 0x22, -1, 0)
t.mprotect(ctypes.c_void_p(low), ctypes.c_size_t(4096), 0)
assert t.sigaltstack(ctypes.byref(Stack(low + 4096, 0, 2 * 4096)), None) == 0
assert t.sigaction(signal.SIGSEGV, ctypes.byref(Action(ctypes.cast(t.abort, ctypes.c_void_p), flags=0x08000000)), None) == 0
(said("aborts"), t.strlen(1))  # here
''',
}


def run(python, script, **env):
    result = subprocess.run([python.path, script.name], cwd=script.parent, capture_output=True, text=True, timeout=COMMAND_TIMEOUT,
                            env={**clean_environment(), 'PYTHONDONTWRITEBYTECODE': '1', 'MALLOC_PERTURB_': '0', **env})
    result.stderr = CLOSING.sub('', result.stderr)
    return result


def without_addresses(text):
    return re.sub(r'0x[0-9a-f]+', '', text)


def aborts_of(analyze, directory):
    rows = [row['values'] for row in analyze('dump', directory, rc=None)['rows'] if row['kind'] == 'silence']
    return [dict(row, frames=frames_of(row['stack'])) for row in rows if int(row['flags'], 16) & ABORT]


@pytest.mark.parametrize('end', ENDS)
@by_version
def test_frames_of_all_threads(analyze, tmp_path, lib, python, end):
    """The process dies by SIGABRT and prints what it prints without the library. There is a record of each thread with the
    frames where it stands: of the thread that aborts, of others with records, and of others without."""
    script = tmp_path / 'script.py'
    text = HEAD + 'begin()\n' + ENDS[end]
    script.write_text(text)
    plain, seen = run(python, script), run(python, script, LD_PRELOAD=str(lib), TFI_OUTPUT_DIR=str(tmp_path / 'run'))
    assert (plain.returncode, seen.returncode) == (-signal.SIGABRT, -signal.SIGABRT), (plain.stderr, seen.stderr)
    assert without_addresses(seen.stderr) == without_addresses(plain.stderr)
    said = {name: (tid, [tuple(f) for f in frames]) for name, tid, frames in map(json.loads, seen.stdout.splitlines())}
    found = aborts_of(analyze, tmp_path / 'run')
    for name, (tid, frames) in said.items():
        matching = [r for r in found if [shown(f) for f in r['frames']] == [shown(f) for f in frames]]
        assert matching, (name, frames, found)
        assert {r['thread'] > 0 for r in matching} == {name != 'quiet'}
        assert {r['tid'] for r in matching} <= ({tid, 0} if name == 'quiet' else {tid})
        assert {r['reading'] for r in matching} == {STILL} or (name == 'quiet' and python.version < (3, 11)) or end == 'at once'


@pytest.mark.slow
def test_a_thread_without_python_aborts(analyze, tmp_path, lib):
    """The thread that aborts has a record without frames, and the others have records with frames, as in gloo."""
    script = tmp_path / 'script.py'
    script.write_text(HEAD + '''begin()
made = ctypes.c_ulong()
(said("main"), t.pthread_create(ctypes.byref(made), None, ctypes.cast(t.abort, ctypes.c_void_p), None), t.pause())
''')
    result = run(pythons.SEEN[-1], script, LD_PRELOAD=str(lib), TFI_OUTPUT_DIR=str(tmp_path / 'run'))
    assert (result.returncode, result.stderr) == (-signal.SIGABRT, '')
    found = aborts_of(analyze, tmp_path / 'run')
    assert [(r['thread'], r['reading']) for r in found if not r['frames']] == [(0, FOREIGN)]
    assert {r['frames'][0][0] for r in found if r['frames']} == {'<module>', 'quiet', 'recorded'}


def test_nothing_is_written(analyze, tmp_path, lib):
    """With TFI_HANG_S=0, and by a forked child, which dies by SIGABRT without a trace of its own."""
    script = tmp_path / 'script.py'
    script.write_text(HEAD + '''begin()
child = os.fork()
if not child: t.abort()
print(os.waitpid(child, 0)[1])
sys.stdout.flush()
os.abort()
''')
    result = run(pythons.SEEN[-1], script, LD_PRELOAD=str(lib), TFI_OUTPUT_DIR=str(tmp_path / 'run'), TFI_HANG_S='0')
    assert result.returncode == -signal.SIGABRT and int(result.stdout.split()[-1]) & 0x7f == signal.SIGABRT
    assert aborts_of(analyze, tmp_path / 'run') == [] and len(list((tmp_path / 'run').glob('*.tfr'))) == 1


def test_a_process_that_goes_on(analyze, tmp_path, lib):
    """A handler of the program jumps out of abort(), twice: what follows is recorded, and the trace is whole."""
    script = tmp_path / 'script.py'
    script.write_text(HEAD + f'''begin()
jumps = ctypes.CDLL({str(BUILD / 'victims' / 'libjumpback.so')!r})
print([jumps.abort_and_go_on() for i in range(2)])
t.tfi_range_push(b'after'), t.tfi_range_pop()
''')
    result = run(pythons.SEEN[-1], script, LD_PRELOAD=str(lib), TFI_OUTPUT_DIR=str(tmp_path / 'run'))
    assert (result.returncode, result.stderr, result.stdout.splitlines()[-1]) == (0, '', str([int(signal.SIGABRT)] * 2))
    assert sum(r['frames'][0][0] == '<listcomp>' or r['frames'][0][0] == '<module>' for r in aborts_of(analyze, tmp_path / 'run')) == 2
    assert 'after' in {row['stage'] for row in analyze('stages', tmp_path / 'run')['rows']}
