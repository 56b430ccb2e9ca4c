"""test_io_calls - recorded calls on files: one record for each call, its content, the tables, and the selection by path."""

import os
import re
import subprocess

import pytest

import iotrace
import scripted
from conftest import clean_environment, execute
from scripted import only

NOT_FILES = {'PROCESS'}  # they have records of their own


@pytest.fixture
def called(run, victim, tmp_path):
    """The run of io_calls: {function: (result, errno, bytes, path)} as the program says, and its trace."""
    (tmp_path / 'files').mkdir()
    result = run([victim('io_calls'), tmp_path / 'files'], {**iotrace.ON, 'TFI_IO_PATHS': '+pipes'})
    assert (result.rc, result.err) == (0, '')
    said = {}
    for line in result.out.splitlines():
        name, code, error, size, path = line.split(' ', 4)
        assert name not in said
        said[name] = int(code), int(error), int(size), None if path == '-' else path
    return said, only(scripted.traces(result.dir))


def test_each_function_once(called):
    """Every row of the tables is called once and gives one record, with result, errno, bytes and path of the call."""
    said, trace = called
    listed = [symbol for table in ('posix', 'stdio') for kind, symbol in iotrace.rows(table) if kind not in NOT_FILES]
    assert len(listed) == len(set(listed)) > 150
    assert set(said) == set(listed)
    found = {}
    for r in iotrace.records(trace):
        found.setdefault(r.name, []).append((r.result, r.error, r.bytes, r.path))
    assert found == {name: [expected] for name, expected in said.items()}
    assert not any(scripted.drops(trace).values())


def test_program_behaves_as_without_the_library(called, victim, tmp_path):
    said, _ = called
    (tmp_path / 'bare').mkdir()
    bare = execute([victim('io_calls'), tmp_path / 'bare'], clean_environment(), tmp_path)
    lines = bare.out.replace('/bare', '/files').splitlines()
    moving = {'mmap', 'mmap64', 'tee', 'vmsplice', 'telldir', 'getdents64'}
    assert bare.rc == 0 and len(lines) == len(said)
    for line in lines:
        name, code, error, size, _ = line.split(' ', 4)
        assert name in moving or said[name][:3] == (int(code), int(error), int(size)), name


def test_columns_of_single_functions(called):
    """Offsets, flags, modes and second files of calls that have them."""
    _, trace = called
    by_name = {r.name: r for r in iotrace.records(trace)}
    assert by_name['pread64'].offset == 8 and by_name['writev'].offset == -1
    assert by_name['open64'].flags == os.O_RDWR | os.O_CREAT and by_name['open64'].mode == 0o600
    assert by_name['lseek64'].flags == os.SEEK_CUR and by_name['mkdir'].mode == 0o700
    assert by_name['rename'].other.endswith('/files/f5') and by_name['symlink'].other == 'target'
    assert by_name['sendfile'].other.endswith('/files/v') and by_name['sendfile'].offset == 2
    assert by_name['dup2'].other_fd == 60 and by_name['pipe'].other_fd == -1
    assert {r.library for r in by_name.values()} == {'posix', 'stdio'}


# Functions of the families that stay unwrapped, each with its reason in the head of posix.def or stdio.def.
LEFT_OUT = re.compile(r'''
    __open_catalog | __freadable | __freading | __statfs | __(?:open|open64|fstat64|close|read|write|pread64|pwrite64|lseek|fcntl|dup2|pipe|mmap|munmap|madvise|fork|vfork)(?:_nocancel)?
    | __fseeko64 | __ftello64 | __fdelt_chk | __mq_open_2 | open_(?:w?memstream|tree|by_handle_at) | openlog | openpty
    | fopencookie | fcloseall | pread64_nocancel | readline.* | statfs.* | fstatfs.* | statvfs.* | fstatvfs.*
    | __(?:pread64|open64)_nocancel | linkat_.* | dup(?:locale) | __duplocale | fgetgrent.* | fgetpwent.* | fgetsgent.* | fgetspent.*
    | fgetxattr | closelog | accessx? | remap_file_pages | removexattr | unlinkat_.* | fputw?c.* | fgetw?c.* | (?:__)?fgetws.*
    | fputws.* | forkpty | writev_.* | renameat_.* | syncookies | pipe_.* | ftw.* | fts.* | truncate_.* | mmap_.* | fdopen_.*
    | __fgetws.* | aio_init | posix_spawn(?:attr|_file_actions)_.* | posix_spawn_.* | mknod_.* | symlink_.* | fork_.* | creat.*module
    | create_module | dirname''', re.X)
FAMILIES = re.compile(r'''_*(?:open|creat|mkstemp|mkostemp|mkdtemp|close|read|write|pread|pwrite|sendfile|copy_file_range|splice|tee|vmsplice|lseek|fsync
    |fdatasync|sync|fallocate|posix_fa|ftruncate|truncate|mmap|munmap|msync|madvise|posix_madvise|stat|fstat|lstat|l?f?xstat|f?xstatat
    |access|faccess|eaccess|euidaccess|mkdir|rmdir|mkfifo|mknod|rename|link|symlink|unlink|remove|chmod|fchmod|lchmod|chown|fchown|lchown
    |utime|futime|lutime|utimens|futimens|rewinddir|seekdir|telldir|fdopendir|getdents|dup|fcntl|pipe|fopen|freopen|fdopen|fclose|fread
    |fwrite|fseek|ftell|rewind|fgetpos|fsetpos|fflush|fgets|fputs|fprintf|vfprintf|v?dprintf|getline|getdelim|aio_|lio_|fork|vfork
    |posix_spawn)[a-z0-9_]*''', re.X)


def test_tables_have_every_function_of_the_families():
    """Every function that the installed glibc exports in these families is a row, or is left out by name."""
    listed = {symbol for table in ('posix', 'stdio') for _, symbol in iotrace.rows(table)}
    families = {name for name in iotrace.exported(iotrace.libc()) if FAMILIES.fullmatch(name)}
    assert len(families) > 150
    assert {name for name in families - listed if not LEFT_OUT.fullmatch(name)} == set()


def test_library_exports_the_tables(lib):
    listed = {symbol for table in ('posix', 'stdio') for _, symbol in iotrace.rows(table)}
    assert listed <= iotrace.exported(lib)


# ---- strace as second opinion ----

TRACED = ('open,openat,creat,close,read,write,pread64,pwrite64,readv,writev,preadv,pwritev,lseek,fsync,fdatasync,ftruncate,mkdir,mkdirat,'
          'rmdir,rename,renameat,renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,chmod,fchmod,dup,dup2,dup3,truncate,readlink')


def straced(command, env, log, cwd):
    """[(function, first argument, result)] of a program and its children, as strace reports them."""
    subprocess.run([iotrace.strace(), '-f', '-qq', '-y', '-o', log, '-e', f'trace={TRACED}', *map(str, command)], env=env, cwd=cwd, check=True,
                   stdout=subprocess.DEVNULL)
    return re.findall(r'^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)', log.read_text(), re.M)


def test_strace_agrees(run, victim, tmp_path):
    """Direct POSIX calls of the program: strace sees the same results in the same order, after main."""
    assert iotrace.strace(), 'strace is not installed: scripts/bootstrap test installs it'
    work = tmp_path / 'files'
    work.mkdir()
    result = run([victim('io_plain'), work], iotrace.ON)
    assert result.rc == 0
    ours = [(r.name, r.result) for r in iotrace.records(only(scripted.traces(result.dir)))]
    (tmp_path / 'bare').mkdir()
    theirs = straced([victim('io_plain'), tmp_path / 'bare'], clean_environment(), tmp_path / 'log', tmp_path)
    renamed = {'pread64': 'pread', 'pwrite64': 'pwrite', 'openat': 'open', 'mkdirat': 'mkdir', 'renameat': 'rename', 'renameat2': 'rename'}
    names = [('rmdir' if 'AT_REMOVEDIR' in words else renamed.get(name, name.replace('unlinkat', 'unlink')), int(code))
             for name, words, code in theirs]
    begin = names.index(('mkdir', 0))
    assert names[begin:] == ours
    assert len(ours) > 20


# ---- positions and descriptors ----

@pytest.fixture
def plain(run, victim, tmp_path):
    (tmp_path / 'files').mkdir()
    result = run([victim('io_plain'), tmp_path / 'files'], iotrace.ON)
    return iotrace.records(only(scripted.traces(result.dir)))


def test_positions_follow_reads_writes_and_seeks(plain):
    named = [(r.name, r.offset) for r in plain if r.path and r.path.endswith('/data') and r.name in ('read', 'write', 'lseek')]
    assert named[:6] == [('write', 0), ('write', 5), ('lseek', 11), ('read', 2), ('read', 6), ('read', 11)]


def test_descriptors_keep_their_file(plain):
    """Calls through a duplicate, an inherited descriptor and a number that was used again have the right path."""
    by_fd = [(r.name, r.path.rsplit('/', 1)[1]) for r in plain if r.fd == 100 and r.name in ('read', 'pread', 'close')]
    assert by_fd == [('read', 'data'), ('close', 'data'), ('pread', 'other'), ('close', 'other')]


# ---- selection ----

PROGRAM = '''
import os, sys
for name in sys.argv[1:]:
    try:
        fd = os.open(name, os.O_RDONLY)
        os.read(fd, 4)
        os.close(fd)
    except OSError:
        pass
'''


def selected(run, tmp_path, value):
    """The paths of the reads that one value of TFI_IO_PATHS selects."""
    for name in ('a/one', 'a/two', 'b/three', 'x.so', 'x.so.1', 'y.py', 'z.pyc', 'kept.tfr', 'x.song'):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('text')
    names = ['a/one', 'a/two', 'b/three', 'x.so', 'x.so.1', 'y.py', 'z.pyc', 'kept.tfr', 'x.song', '/proc/self/stat', '/sys/kernel/mm/ksm/run']
    result = run(['/usr/bin/python3', '-S', '-c', PROGRAM, *names], {**iotrace.ON, 'TFI_IO_PATHS': value})
    assert result.rc == 0 and result.err == ''
    return [r.path.replace(f'{tmp_path}/', '') for r in iotrace.all_records(result.dir) if r.name == 'read' and 'zip' not in r.path]


ORDINARY = ['a/one', 'a/two', 'b/three', 'x.song']


@pytest.mark.parametrize('value, paths', [
    (None, ORDINARY),
    ('{}/a', ['a/one', 'a/two']),
    ('{}/a,-{}/a/two', ['a/one']),
    ('-{}/b', ['a/one', 'a/two', 'x.song']),
    ('+so', [*ORDINARY[:3], 'x.so', 'x.so.1', 'x.song']),
    ('{}/y,+py', ['y.py']),
    ('{}/,+pyc,+traces', [*ORDINARY[:3], 'z.pyc', 'kept.tfr', 'x.song']),
    ('/proc,+proc', ['/proc/self/stat']),
    ('/nowhere', []),
])
def test_selected_paths(run, tmp_path, value, paths):
    found = selected(run, tmp_path, value and value.replace('{}', str(tmp_path)))
    assert [p for p in found if p in {*paths} or not p.startswith('/')] == paths


def test_bad_values_are_named(run, tmp_path):
    result = run(['/usr/bin/python3', '-S', '-c', PROGRAM, 'pyproject'], {**iotrace.ON, 'TFI_IO_PATHS': 'data,+cats'})
    assert 'TFI_IO_PATHS=data,+cats is not valid' in result.err and '+proc' in result.err


def test_nothing_is_recorded_by_default(run, victim, tmp_path):
    (tmp_path / 'files').mkdir()
    result = run([victim('io_plain'), tmp_path / 'files'])
    assert result.rc == 0 and not result.dir.exists()


def test_only_selected_stages(run, victim, tmp_path):
    """Calls outside a selected stage are not recorded; the stage is the innermost one of the thread."""
    result = run([victim('io_stages'), tmp_path], {**iotrace.ON, 'ENABLE_PROFILER_NAMES': 'load'})
    assert result.rc == 0
    found = iotrace.all_records(result.dir)
    assert [(r.name, r.path.rsplit('/', 1)[1]) for r in found] == [('write', 'inside'), ('read', 'inside')]


def test_a_trigger_alone_does_not_wake(run, victim, tmp_path):
    """A process whose trigger could switch io on sleeps on while nothing does."""
    (tmp_path / 'files').mkdir()
    result = run([victim('io_plain'), tmp_path / 'files'], {'TFI_TRIGGER': f'file:{tmp_path}/switch'})
    assert result.rc == 0 and not result.dir.exists()


# ---- sums ----

@pytest.mark.parametrize('interval', [1, 1000000])
def test_sums_instead_of_single_calls(run, victim, tmp_path, interval):
    """Sums of all rows equal what single records say; a long interval gives one row for a function and file."""
    (tmp_path / 'files').mkdir()
    result = run([victim('io_plain'), tmp_path / 'files'], iotrace.ON)
    single = iotrace.all_records(result.dir)
    (tmp_path / 'again').mkdir()
    env = {**iotrace.ON, 'TFI_IO_AGGREGATE_MS': interval, 'TFI_OUTPUT_DIR': tmp_path / 'run2'}
    result = run([victim('io_plain'), tmp_path / 'again'], env)
    assert iotrace.all_records(result.dir) == []
    expected, found = {}, {}
    for r in single:
        total = expected.setdefault((r.name, r.path and r.path.replace('/files', '/again')), [0, 0, 0])
        for i, value in enumerate((1, r.bytes, max(r.result, 0))):
            total[i] += value
    rows = iotrace.all_records(result.dir, 'io_sum')
    for r in rows:
        total = found.setdefault((r.name, r.path), [0, 0, 0])
        for i, value in enumerate((r.calls, r.requested, r.bytes)):
            total[i] += value
    assert found == expected
    assert all(r.least <= r.most and r.longest <= r.busy <= r.duration for r in rows)


# ---- processes ----

def test_events_of_processes(run, victim, tmp_path):
    """fork, posix_spawn, exec and the end of each process are events, with pids and programs."""
    result = run([victim('io_process'), tmp_path], iotrace.ON)
    assert result.rc == 0, result.err
    said = dict(line.split() for line in result.out.splitlines())
    traces = scripted.traces(result.dir)
    parent = next(t for t in traces if int(t.info['pid']) == int(said['parent']))
    events = [(e.event, e.pid, e.path) for e in iotrace.records(parent, 'process')]
    assert events == [(1, int(said['forked']), None), (2, int(said['spawned']), '/bin/true'), (4, int(said['parent']), None)]
    child = next(t for t in traces if int(t.info['pid']) == int(said['forked']))
    assert [(e.event, e.pid, e.path) for e in iotrace.records(child, 'process')] == [(3, int(said['forked']), '/bin/true')]
    inherited = [r for r in iotrace.records(child) if r.name == 'pread']
    assert [r.path for r in inherited] == [str(tmp_path / 'inherited')] and inherited[0].result == 4
    assert [r.path for r in iotrace.records(parent) if r.name == 'write'] == [str(tmp_path / 'inherited')]
