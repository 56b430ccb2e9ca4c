"""test_little - a process that does little costs little: few pages of the live file, a small trace; a full disk costs no process its life."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import iotrace
import scripted
from conftest import clean_environment, execute, without_start
from scripted import only

KIB = 1024
# Opens a file and is killed: its live file stays. Then a child of fork does the same.
KILLED = 'import os, signal; {}os.close(os.open("/dev/null", os.O_RDONLY)); os.kill(os.getpid(), signal.SIGKILL)'


@pytest.mark.skipif(not iotrace.strace(), reason='needs strace')
def test_no_thread(run):
    """A process that does little never has a thread of ours: to start one and wait for its end takes longer than all the rest."""
    result = run(['strace', '-f', '-qq', '-e', 'trace=clone,clone3', 'cat', '/dev/null'], iotrace.ON)
    assert result.rc == 0 and 'clone' not in result.err and len(iotrace.all_records(result.dir)) > 0


def test_small_trace(run):
    """All of a small trace fits into one block of a disk, although it describes every kind of record."""
    result = run(['cat', '/dev/null'], iotrace.ON)
    trace = only(scripted.traces(result.dir))
    assert trace.complete and 'open' in [r.name for r in iotrace.records(trace)]
    assert trace.path.stat().st_size <= 4 * KIB


@pytest.mark.parametrize('fork', ['', 'os.fork() and (os.wait(), os._exit(0)); '], ids=['process', 'child'])
def test_few_pages(run, fork):
    """The live file has the size of the pool, but only the pages that the process used: a file system in memory would clear all."""
    result = run([sys.executable, '-S', '-c', KILLED.format(fork)], iotrace.ON)
    assert result.rc == (0 if fork else -signal.SIGKILL)
    live = only(list(result.dir.glob('*.live'))).stat()
    assert live.st_size == 16 * KIB * KIB and live.st_blocks * 512 <= 160 * KIB
    assert any(not t.complete and iotrace.records(t) for t in scripted.traces(result.dir))


@pytest.mark.parametrize('moment', ['live', 'size', 'map'])
def test_killed_while_it_opens_its_trace(lib, victim, analyze, tmp_path, moment):
    """A process that is killed before it recorded anything is no error of the disk, and no answer is incomplete for it."""
    environment = {**clean_environment(), **iotrace.ON, 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    killed = {'LD_PRELOAD': f'{victim("libkill_opening.so")} {lib}', 'KILL_AT': moment}
    assert execute(['cat', '/dev/null'], {**environment, 'LD_PRELOAD': str(lib)}).rc == 0
    assert execute(['cat', '/dev/null'], {**environment, **killed}).rc == -signal.SIGKILL
    assert len(list((tmp_path / 'run').glob('*.tfr'))) == 2
    result = analyze('info', tmp_path / 'run', format='text')
    assert [line.split(': ', 2)[2] for line in result.err.splitlines()] == ['its process was killed before it recorded anything']


# Wakes the library, takes all room, and goes on for more chunks than the live file has pages for.
FULL = '''import os, sys
os.close(os.open("/dev/null", os.O_RDONLY))
fill = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
try:
    while os.write(fill, bytes(1 << 16)): pass
except OSError: pass
for i in range(20000): os.access("/dev/null", i % 7)
'''


# Names without end.
NAMES = """import ctypes, sys
ours = ctypes.CDLL(None)
for i in range(int(sys.argv[1])):
    ours.tfi_range_push(b"%d" % i + b"x" * 100)
    ours.tfi_range_pop()
"""


def test_names_count_for_the_cap(run, analyze):
    """TFI_MAX_MB holds for names too, which had no limit; the stages that are in the trace have their names."""
    result = run([sys.executable, '-S', '-c', NAMES, 100000], {'TFI_MAX_MB': '1'})
    trace = only(scripted.traces(result.dir))
    assert result.rc == 0 and 'TFI_MAX_MB=1' in result.err and 200 * KIB < trace.path.stat().st_size <= KIB * KIB
    row, = analyze('info', result.dir, rc=3)['rows']
    stages = without_start(analyze('stages', result.dir, rc=3)['rows'])
    assert row['lost']['cap'] > 0 and len(stages) > 100 and all(stage['stage'].endswith('x') for stage in stages)


@pytest.mark.skipif(os.geteuid() != 0, reason='needs root to mount a small tmpfs')
def test_full_disk_while_the_pool_grows(run, analyze, tmp_path):
    """The live file cannot get the pages of its next chunks: the program ends as without the library, and every call is there or counted."""
    mount = tmp_path / 'small'
    mount.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=20m', 'tmpfs', mount], capture_output=True).returncode != 0:
        pytest.skip('mounting a tmpfs is not allowed here')
    try:
        result = run([sys.executable, '-S', '-c', FULL, mount / 'fill'], {**iotrace.ON, 'TFI_OUTPUT_DIR': mount / 'run'})
        lines = result.err.splitlines()
        assert result.rc == 0 and 1 <= len(lines) <= 2 and all('no space left' in line for line in lines), result.err
        row, = analyze('info', mount / 'run', rc=3)['rows']
        assert row['events'].get('io', 0) + sum(row['lost'].values()) >= 20000
    finally:
        subprocess.run(['umount', '-l', mount], check=False)


def test_no_room_for_the_pool(run, analyze, tmp_path):
    """A nearly full disk keeps its last bytes for the trace: the pool lies in /dev/shm, or in memory with a message."""
    mount = tmp_path / 'small'
    mount.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', mount], capture_output=True).returncode != 0:
        pytest.skip('mounting a tmpfs is not allowed here')
    try:
        result = run(['cat', '/dev/null'], {**iotrace.ON, 'TFI_OUTPUT_DIR': mount / 'run'})
        assert result.rc == 0 and not list((mount / 'run').glob('*.live'))
        row, = analyze('info', mount / 'run')['rows']
        assert row['complete'] and row['events']['io'] > 0
    finally:
        subprocess.run(['umount', '-l', mount], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason='needs root to mount a small tmpfs')
def test_what_killed_processes_leave_in_memory(run, victim, lib, tmp_path):
    """A new run removes a live file in /dev/shm a day after it found nobody in it, and never one that is in use."""
    mount, old = tmp_path / 'small', time.time() - 2 * 86400
    mount.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', mount], capture_output=True).returncode != 0:
        pytest.skip('mounting a tmpfs is not allowed here')

    def look(mode):
        live.chmod(mode)
        os.utime(live, (old, old))
        run([victim('script'), 'push=b', 'pop'], {'TFI_OUTPUT_DIR': mount / 'run'})
        return live.exists() and live.stat().st_mode & 0o7777, live.exists() and live.stat().st_mtime > old + 60
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(mount / 'run')}
    held = subprocess.Popen([victim('script'), 'push=a', 'say=ready', 'wait=100000', 'pop'], env=env, stdout=subprocess.PIPE)
    try:
        assert held.stdout.readline() == b'ready\n'
        live, = Path('/dev/shm').glob(f'tfinject.*.{held.pid}.tfr.live')
        assert look(0o1600) == (0o1600, False), 'somebody maps the file'
        held.kill()
        held.wait()
        assert look(0o600) == (0o1600, True), 'found free for the first time'
        assert look(0o1600) == (False, False)
    finally:
        held.kill()
        held.communicate()
        subprocess.run(['umount', '-l', mount], check=False)


@pytest.mark.parametrize('where', ['everything', 'the head and the names', 'the chunks'])
def test_a_hole_in_the_live_file(run, victim, where):
    """Somebody cuts holes into the live file again and again: the program runs on, whatever becomes of its trace."""
    begin, length = {'everything': (0, 16 << 20), 'the head and the names': (0, 2 << 20), 'the chunks': (2 << 20, 14 << 20)}[where]
    hole = f'system=fallocate --punch-hole --offset {begin} --length {length} $TFI_OUTPUT_DIR/*.live'
    part = [*(word for i in range(700) for word in (f'push=stage {i}', f'call={i}', f'a.call={i}', 'pop')), hole, 'push=open']
    steps = [*part, *(word.replace('stage', 'more') for word in part), *part, 'pop', 'pop', 'pop', 'say=end']
    result = run([victim('script'), *steps], {'TFI_WITH_STACK': '1'}, preload='test')
    assert (result.rc, result.out) == (0, 'end\n'), result.err


# ---- what the process may need itself, or no longer has ----

FEW = '''import os, sys
held = []
os.close(os.open("/dev/null", os.O_RDONLY))
try:
    while True: held.append(os.dup(0))
except OSError: pass
for fd in held: os.close(fd)
print(len(held))
'''


def test_no_descriptor_is_held_where_they_are_few(run):
    """With RLIMIT_NOFILE of 8 the program gets as many descriptors as without the library."""
    few = ['bash', '-c', 'ulimit -n 8; exec "$0" -S -c "$1"', sys.executable, FEW]
    alone, result = run(few, preload=False), run(few, iotrace.ON)
    assert (result.rc, result.out, result.err) == (alone.rc, alone.out, '') == (0, '5\n', '')
    assert all(trace.complete for trace in scripted.traces(result.dir)) and len(iotrace.all_records(result.dir)) > 50


SEEN = '''import os, threading
def seen(): return [fd for fd in range(3, os.sysconf("SC_OPEN_MAX")) if os.path.exists(f"/proc/self/fd/{fd}")]
os.close(os.open("/dev/null", os.O_RDONLY))
first, own = seen(), None
for i in range(20000):
    os.close(os.open("/dev/null", os.O_RDONLY))
    own = own or next((t for t in os.listdir("/proc/self/task") if int(t) != os.getpid()), None)
print(first, seen(), own is not None)
'''


@pytest.mark.parametrize('limit', [40, 100, 1024])
def test_descriptors_that_a_program_sees(run, limit):
    """A program that lists its descriptors finds none of ours, before and after the background thread has opened the trace."""
    result = run(['bash', '-c', f'ulimit -n {limit}; exec "$0" -S -c "$1"', sys.executable, SEEN], iotrace.ON)
    assert (result.rc, result.out, result.err) == (0, '[] [] True\n', '')
    assert all(trace.complete for trace in scripted.traces(result.dir))


def test_the_lowest_free_number_is_the_programs(run, victim):
    """A program that closes descriptors that are not its own, or opens files under their numbers, still gets the lowest free
    number at each open, while the background thread writes."""
    result = run([victim('lowest_number'), 60], iotrace.ON)
    assert (result.rc, result.out, result.err) == (0, '0 other numbers\n', '')
    assert len(iotrace.all_records(result.dir)) > 60 * 2 * 3000


NONE_LEFT = '''import os, sys
null = os.open("/dev/null", os.O_RDONLY)
if sys.argv[1] == "long":
    for i in range(20000): os.read(null, 1)
try:
    while True: os.dup(null)
except OSError: pass
for i in range(5): os.read(null, 1)
os._exit(0)
'''


@pytest.mark.parametrize('length', ['short', 'long'])
def test_no_descriptor_is_left_at_the_end(run, length):
    """The end of the trace of a program that has used up its descriptors is written all the same."""
    result = run(['bash', '-c', 'ulimit -n 64; exec "$0" -S -c "$1" "$2"', sys.executable, NONE_LEFT, length], iotrace.ON)
    assert (result.rc, result.err) == (0, '')
    trace = max(scripted.traces(result.dir), key=lambda trace: len(trace.records))  # bash has one too
    assert trace.complete and not list(result.dir.glob('*.live'))
    assert [r.name for r in iotrace.records(trace)][-5:] == ['read'] * 5


WITHOUT_NEW_CALLS = '''import ctypes, os, sys
libc = ctypes.CDLL(None)
class Code(ctypes.Structure): _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32)]
class Filter(ctypes.Structure): _fields_ = [("length", ctypes.c_uint16), ("codes", ctypes.POINTER(Code))]
refused = [436, 438]  # close_range and pidfd_getfd: ENOSYS
codes = [(0x20, 0, 0, 0)] + [(0x15, len(refused) - i, 0, n) for i, n in enumerate(refused)] + [(0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x50026)]
array = (Code * len(codes))(*(Code(*c) for c in codes))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(Filter(len(codes), array)), 0, 0) == 0
os.environ["LD_PRELOAD"] = sys.argv[1]
os.execv(sys.argv[2], sys.argv[2:])
'''

PIPE_END = '''import os
def reads_its_end():
    read, write = os.pipe()
    os.close(write)
    os.set_blocking(read, False)
    end = os.read(read, 1) == b""
    os.close(read)
    return end
os.close(os.open("/dev/null", os.O_RDONLY))
ended = all(reads_its_end() for i in range(20000))
left = [fd for fd in range(3, 64) if os.path.exists(f"/proc/self/fd/{fd}")]
print(ended, left, any(open(f"/proc/self/task/{task}/comm").read() == "tfinject\\n" for task in os.listdir("/proc/self/task")))
'''


@pytest.mark.parametrize('kernel', ['now', 'old'])
def test_no_copy_of_a_descriptor_is_left(run, lib, kernel):
    """The library's threads, one of which runs at least, keep no copy of the program's descriptors: a pipe whose only writer is closed has
    its end at once. On kernels without close_range too."""
    program = [sys.executable, '-S', '-c', PIPE_END]
    result = run(program if kernel == 'now' else [sys.executable, '-c', WITHOUT_NEW_CALLS, lib, *program], iotrace.ON, preload=kernel == 'now')
    assert (result.rc, result.out, result.err) == (0, 'True [] True\n', '')
    assert only(scripted.traces(result.dir)).complete


@pytest.mark.skipif(os.geteuid() != 0, reason='needs root to change its user')
def test_a_process_that_changes_its_user(run, analyze):
    """Such a process may not remove its live file: it says nothing and leaves a file without a block, which no answer mentions."""
    program = 'import os; os.close(os.open("/dev/null", 0)); os.setgid(65534); os.setuid(65534); os.close(os.open("/dev/null", 0))'
    result = run([sys.executable, '-S', '-c', program], iotrace.ON)
    assert (result.rc, result.err) == (0, '')
    assert only(list(result.dir.glob('*.live'))).stat().st_blocks == 0
    answer = analyze('info', result.dir, format='text')
    assert 'complete          yes' in answer.out and answer.err == ''


AWAY = '''import os, sys
def reads():
    for i in range(int(sys.argv[2])): os.read(null, 1)
null = os.open("/dev/null", os.O_RDONLY)
reads()
os.mkdir("elsewhere")
for change in sys.argv[1].split(): {"root": lambda: os.chroot("elsewhere"), "group": lambda: os.setgid(65534), "user": lambda: os.setuid(65534)}[change]()
reads()
os.read(null, 1)
'''


@pytest.mark.skipif(os.geteuid() != 0, reason='needs root to change its user and its root')
@pytest.mark.parametrize('calls', [5, 20000])
@pytest.mark.parametrize('changes', ['root', 'user', 'root group user'])
def test_the_way_to_the_trace_is_lost(run, changes, calls):
    """A process that changes its user or its root has its whole trace, whether the background thread had begun or not."""
    result = run([sys.executable, '-S', '-c', AWAY, changes, calls], iotrace.ON)
    assert (result.rc, result.err) == (0, '')
    trace = only(scripted.traces(result.dir))
    assert trace.complete and len([r for r in iotrace.records(trace) if r.name == 'read' and r.path == '/dev/null']) == 2 * calls + 1


def test_many_names_are_taken(lib, tmp_path):
    """A process that executes one program after the other finds a free name beside 5,000, and looks at few of them."""
    taken = 'mkdir run; n=run/rank0.$(uname -n).$$; touch $n.tfr; for i in {2..5000}; do echo $n.$i.tfr; done | xargs touch; exec "$0" "$@"'
    environment = {**clean_environment(), **iotrace.ON, 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    result = execute(['bash', '-c', taken, 'env', f'LD_PRELOAD={lib}', 'cat', '/dev/null'], environment, tmp_path)
    assert (result.rc, result.err) == (0, '')
    trace = scripted.trace(only([path for path in (tmp_path / 'run').glob('*.tfr') if path.stat().st_size]))
    assert trace.complete and trace.path.name.endswith('.5001.tfr')


def test_the_working_directory_was_deleted(lib, tmp_path):
    """The trace of a relative directory goes to /tmp then, and one line says so."""
    name = f'tfinject-deleted-{os.getpid()}'
    command = 'mkdir gone; cd gone; rmdir ../gone; exec env "$@"'
    variables = [f'LD_PRELOAD={lib}', f'TFI_OUTPUT_DIR={name}', 'TFI_ACTIVITIES=io']
    try:
        result = execute(['bash', '-c', command, 'bash', *variables, 'cat', '/dev/null'], clean_environment(), tmp_path)
        line, = result.err.splitlines()
        assert result.rc == 0 and line.startswith(f'tfinject: recording to /tmp/{name}/') and 'no longer exists' in line
        assert len(list(Path('/tmp', name).glob('*.tfr'))) == 1
    finally:
        shutil.rmtree(f'/tmp/{name}', ignore_errors=True)


# ---- the live files of a run of many processes ----

def live_files_made(text):
    return [line for line in text.splitlines() if 'O_EXCL' in line and '.tfr.live"' in line]


@pytest.mark.skipif(not iotrace.strace(), reason='needs strace')
def test_processes_leave_their_live_file_to_the_next(run, analyze):
    """20 processes, one after the other, make one live file beside their shell's; nothing of it is left, and every trace is whole."""
    script = 'for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do cat /dev/null; done'
    result = run(['strace', '-f', '-qq', '-e', 'trace=openat', 'bash', '-c', script], iotrace.ON)
    assert result.rc == 0 and len(live_files_made(result.err)) == 2, result.err
    traces = scripted.traces(result.dir)
    assert len(traces) >= 20 and all(trace.complete for trace in traces)
    assert [path.name for path in result.dir.iterdir() if not path.name.endswith('.tfr')] == ['.said']
    assert analyze('info', result.dir, format='text').err == ''


# Its child maps the live file of the process that ends, and prints under which name once it may go on.
HELD = '''import os
os.close(os.open("/dev/null", os.O_RDONLY))
if os.fork(): os._exit(0)
os.read(4, 1)
print(sorted({line.split("/")[-1][:6] for line in open("/proc/self/maps") if "/run/" in line and not f".{os.getpid()}." in line}))
'''
DIES = 'import os, signal; os.close(os.open("/dev/null", 0)); os.kill(os.getpid(), signal.SIGKILL)'


def test_a_live_file_that_is_in_use_is_nobodys(run):
    """The child of a fork still maps its parent's live file: no other process takes that, and the records of killed ones are theirs."""
    script = 'mkfifo go; exec 4<>go; "$0" -S -c "$1"; for i in 1 2 3; do "$0" -S -c "$2"; done; echo >&4'
    result = run(['bash', '-c', f'({script}) | cat', sys.executable, HELD, DIES], iotrace.ON)
    assert (result.rc, result.out) == (0, "['.spare']\n"), result.err
    lost = [trace for trace in scripted.traces(result.dir) if not trace.complete]
    assert len(lost) == 3 and all([r.path for r in iotrace.records(trace)][-1] == '/dev/null' for trace in lost)


def test_files_of_others_are_not_taken(run, tmp_path):
    """What has the name of such a file but is none stays as it is: the program's own files, links and pipes."""
    own = tmp_path / 'own'
    own.write_bytes(bytes(16 << 20))
    own.chmod(0o400)
    (tmp_path / 'run').mkdir()
    names = [tmp_path / 'run' / f'.spare{n}' for n in range(4)]
    names[0].write_text('mine')
    names[1].symlink_to(own)
    os.mkfifo(names[2])
    os.link(own, names[3])
    before = [(path, os.lstat(path)[:7]) for path in (*names, own)]
    result = run(['bash', '-c', 'for i in 1 2 3; do cat /dev/null; done'], iotrace.ON)
    assert (result.rc, result.out) == (0, '') and names[0].read_text() == 'mine'
    assert before == [(path, os.lstat(path)[:7]) for path in (*names, own)]
    assert all(trace.complete for trace in scripted.traces(result.dir))
