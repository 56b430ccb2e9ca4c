"""test_promises_victims - more programs that must not notice the library: languages, allocators, users, limits.

Each program runs bare and watched, with the same output and status. Its calls are in a trace, or the test says that the
program is invisible: the C library does not show us raw system calls and static programs.
"""

import ctypes.util
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import scripted
from conftest import BUILD, CLOSING, COMMAND_TIMEOUT, ROOT, built, clean_environment, execute
from scripted import called, only, slots, stages

pytestmark = pytest.mark.slow

FLAGS = [f'-I{ROOT}/include', f'-I{ROOT}/tests', f'-L{BUILD}/victims', '-ldummy', f'-Wl,-rpath,{BUILD}/victims']
USERS = 12345, 12346


@pytest.fixture
def same(run, tmp_path):
    """same(command, env={}, preload='test', err='same', **options) -> the watched run; err='same' compares stderr too."""
    def same(command, env=None, preload='test', err='same', **options):
        bare = run(command, env, preload=False, **options)
        (tmp_path / 'log').unlink(missing_ok=True)
        watched = run(command, env, preload=preload, **options)
        assert (watched.out, watched.rc) == (bare.out, bare.rc), watched.err
        assert err is None or watched.err == (bare.err if err == 'same' else err)
        return watched
    return same


@pytest.fixture
def awake(testlib, victim):
    """Libraries to preload that wake every process, even in programs without stages."""
    return f'{testlib} {victim("libawake.so")}'


def compiled(tmp_path, text, *options, missing):
    """A program from C source; skips with the reason `missing` if it cannot be linked."""
    (tmp_path / 'program.c').write_text(text)
    result = execute(['gcc', *options, 'program.c', '-o', 'program', *([] if '-static' in options else FLAGS)], clean_environment(), tmp_path)
    if result.rc:
        pytest.skip(missing)
    return tmp_path / 'program'


@pytest.fixture
def recorded(analyze, tmp_path):
    """recorded(mode, result): checks that the traces have the calls that the watched run of `weather` noted in `log`."""
    def recorded(mode, result):
        wanted = sum(int(line.split()[1]) for line in (tmp_path / 'log').read_text().splitlines())
        answer = analyze('info', result.dir, '--format', 'json', rc=None, format=None)
        rows = json.loads(answer.out)['rows']
        found, held_up = (sum(row[kind].get(name, 0) for row in rows) for kind, name in (('events', 'call'), ('lost', 'locked')))
        assert answer.rc == (3 if held_up else 0), answer.err  # a thread that writes may stand still for more than a second
        assert 0 < wanted <= found + held_up
        assert found <= wanted or mode == 'cancel'  # cancelled threads make an unknown number
    return recorded


# ---- C++ exceptions ----

@pytest.mark.parametrize('mode, calls_seen, stage, times', [('caught', 1000, 'attempt', 1000), ('nested', 100, None, 0),
                                                            ('exit', 100, 'thread', 100)])
def test_exceptions_pass_through_wrappers(same, victim, mode, calls_seen, stage, times):
    """Exceptions are caught in their usual place, all destructors run, and later calls are recorded."""
    trace = only(scripted.traces(same([victim('exceptions'), mode]).dir))
    assert len(called(trace)) == calls_seen
    assert stages(trace).count(stage) == times
    assert not [r for r in trace.records if r.kind == 'drop' and r.values['count']]


def test_a_call_left_by_an_exception_is_not_shown_for_ever(same, victim):
    """The slot that `hang` reads forgets a call left by an exception at the thread's next call."""
    result = same([victim('exceptions'), 'killed'])
    assert result.rc == -signal.SIGKILL
    slot, = slots(only(list(result.dir.glob('*.live')))).values()
    assert (slot.calls, slot.nr_calls) == ([], 0)


@pytest.mark.parametrize('mode', ['terminate', 'uncaught'])
def test_exceptions_nobody_catches(same, victim, mode):
    """std::terminate prints the same message and ends the program in the same way."""
    result = same([victim('exceptions'), mode])
    assert result.rc == -signal.SIGABRT and 'odd' in result.err


# ---- plugins, auditors, allocators ----

@pytest.mark.parametrize('balanced', [1, 0])
def test_closing_a_plugin_that_uses_nvtx(same, victim, balanced):
    """The plugin is unmapped as without us, even with an open range; the ranges of each loaded copy are recorded."""
    trace = only(scripted.traces(same([victim('plugins'), victim('libnvtxuser.so'), 20, balanced]).dir))
    assert stages(trace, 'range_begin').count('plugin') == stages(trace, 'range_begin').count('load') == 20
    # Ranges of the default domain and ours nest, so the first range closed is the last one left open.
    assert (stages(trace).count('plugin'), stages(trace).count('load')) == ((20, 20) if balanced else (20, 0))


@pytest.mark.parametrize('mode', ['return', 'threads', 'forks', 'cancel'])
def test_under_an_auditor(same, recorded, victim, tmp_path, mode):
    """LD_AUDIT: an audit library, in a namespace with its own C library, sees every binding."""
    recorded(mode, same([victim('weather'), mode], {'LD_AUDIT': victim('libaudit.so'), 'WEATHER_LOG': tmp_path / 'log'}))


@pytest.mark.parametrize('mode', ['return', 'threads', 'forks', 'fork_busy', 'cancel', 'quick_exit'])
@pytest.mark.parametrize('order', ['before', 'after'])
def test_tcmalloc(same, recorded, victim, testlib, tmp_path, order, mode):
    """tcmalloc works when preloaded before us and after us."""
    name = ctypes.util.find_library('tcmalloc_minimal')
    if not name:
        pytest.skip('tcmalloc is not installed')
    preload = f'{name} {testlib}' if order == 'before' else f'{testlib} {name}'
    recorded(mode, same([victim('weather'), mode], {'WEATHER_LOG': tmp_path / 'log'}, preload=preload))


def test_address_sanitizer(run, tmp_path):
    """The sanitizer refuses to start behind another library as usual; told not to check, it finds its errors."""
    program = compiled(tmp_path, '''
        #include <stdio.h>
        #include <stdlib.h>
        #include "dummy.h"
        int main(int argc, char **argv)
        {
            char *block = malloc(10);
            printf("%ld\\n", dummy_add(41));
            fflush(stdout);
            block[argc > 1 ? 10 : 9] = argv[0][0];
            free(block);
            return 4;
        }''', '-g', '-fsanitize=address', missing='the address sanitizer is not installed')
    assert 'does not come first' in run([program], preload='test').err
    for arguments, says in [(), ''], (['over'], 'heap-buffer-overflow'):
        bare = run([program, *arguments], preload=False)
        result = run([program, *arguments], {'ASAN_OPTIONS': 'verify_asan_link_order=0', 'TFI_OUTPUT_DIR': tmp_path / f'run{says}'},
                     preload='test')
        assert (result.rc, result.out) == (bare.rc, bare.out) and says in result.err
        assert called(only(scripted.traces(result.dir))) == [41]


# ---- invisible programs ----

def test_a_static_program(same, awake, tmp_path):
    """A static program leaves no trace, and the trace of the program that became it is closed."""
    program = compiled(tmp_path, '#include <stdio.h>\nint main(void) { puts("static"); return 6; }', '-static',
                       missing="libc's static library is not installed")
    assert not same([program], preload=awake).dir.exists()
    trace = only(scripted.traces(same(['env', program], preload=awake).dir))
    assert trace.complete and not list(trace.path.parent.glob('*.live'))


def test_a_go_program(same, tmp_path):
    """A cgo program with sixteen threads keeps an open trace, because it ends by a raw system call."""
    if not shutil.which('go'):
        pytest.skip('Go is not installed')
    env = dict(clean_environment(), GO111MODULE='off', GOCACHE=str(tmp_path / 'cache'), CGO_CFLAGS=' '.join(FLAGS[:2]),
               CGO_LDFLAGS=' '.join(FLAGS[2:]))
    result = execute(['go', 'build', '-o', tmp_path / 'program', 'main.go'], env, ROOT / 'tests/victims/go')
    assert result.rc == 0, result.err
    result = same([tmp_path / 'program'])
    assert result.rc == 3
    trace = only(scripted.traces(result.dir))
    live = only(list(result.dir.glob('*.live')))
    info = execute([built(BUILD / 'tfanalyze'), 'info', result.dir, '--format', 'json'], clean_environment())
    row = only(json.loads(info.out)['rows'])
    assert row['events']['call'] == 16 * 500 and row['events']['range_end'] == 16, (trace.path, live)


# ---- other users ----

@pytest.fixture
def public(lib, victim):
    """A directory that every user may write to, with the library and the victims readable."""
    if os.getuid() != 0:
        pytest.skip('needs root to become another user')
    place = Path(tempfile.mkdtemp(prefix='tfi-public-'))
    place.chmod(0o1777)
    (place / 'lib').mkdir()
    for path in [lib, *BUILD.glob('victims/lib*.so'), victim('script')]:
        shutil.copy(path, place / 'lib')
    (place / 'lib').chmod(0o755)
    yield place
    shutil.rmtree(place)


def as_user(user, command):
    return ['setpriv', f'--reuid={user}', f'--regid={user}', '--clear-groups', '--', *command]


def test_a_setuid_program_of_another_user(run, public):
    """The loader drops preloaded paths of a setuid program: nothing is recorded, no message appears, the program runs."""
    program = public / 'id'
    shutil.copy('/usr/bin/id', program)
    preload = f'{public}/lib/libtfinject.so {public}/lib/libawake.so'
    for mode, recorded in (0o755, True), (0o4755, False):
        program.chmod(mode)
        out = public / f'run{mode:o}'
        bare = run(as_user(USERS[0], [program, '-u']), preload=False)
        watched = run(as_user(USERS[0], ['env', f'LD_PRELOAD={preload}', program, '-u']), {'TFI_OUTPUT_DIR': out}, preload=False)
        assert (watched.out, watched.rc) == (bare.out, bare.rc) == (f'{USERS[0] if recorded else 0}\n', 0)
        assert 'tfinject' not in watched.err
        assert out.exists() == recorded


LOADS_IT = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    void *library = dlopen(argv[argc - 1], RTLD_NOW);
    int (*push)(const char *) = (int (*)(const char *))dlsym(library, "tfi_range_push");
    int (*pop)(void) = (int (*)(void))dlsym(library, "tfi_range_pop");
    push("a");
    pop();
    return puts(getenv("TFI_RUN_DIR") ? "passed on" : "kept") < 0;
}
"""


def test_a_setuid_program_that_loads_the_library_itself(run, public):
    """So does /etc/ld.so.preload. The user's variables choose no directory then, and nothing is passed on to children."""
    program = public / 'program'
    program.with_suffix('.c').write_text(LOADS_IT)
    assert execute(['gcc', program.with_suffix('.c'), '-o', program]).rc == 0
    for mode, said in (0o755, 'passed on\n'), (0o4755, 'kept\n'):
        program.chmod(mode)
        out = public / f'run{mode:o}'
        result = run(as_user(USERS[0], [program, public / 'lib/libtfinject.so']), {'TFI_OUTPUT_DIR': out}, preload=False)
        assert (result.rc, result.out, result.err) == (0, said, '')
        assert out.exists() == (mode == 0o755)


def owners(place):
    return {path: path.stat().st_uid for path in place.rglob('*') if path.is_file()}


STEPS = 'push=a call=1 pop say=done'.split()


def test_two_users_and_one_default_directory(run, public):
    """The second user can't write into the first user's directory: one message says so, and the program runs."""
    work = public / 'work'
    work.mkdir()
    work.chmod(0o1777)
    said = []
    for user in (*USERS, USERS[0]):
        before = owners(work)
        result = run(as_user(user, ['env', f'LD_PRELOAD={public}/lib/libtfinject.so', public / 'lib/script', *STEPS]),
                     {'TFI_OUTPUT_DIR': None}, preload=False, cwd=work)
        assert (result.out, result.rc) == ('done\n', 0)
        made = {path: owner for path, owner in owners(work).items() if path not in before}
        assert before.items() <= owners(work).items() and set(made.values()) <= {user}
        said.append((len([path for path in made if path.suffix == '.tfr']), result.err.count('\n')))
    assert said == [(1, 0), (0, 1), (1, 0)]


def test_two_users_at_once_in_one_directory(public):
    """Two users in a directory that both may write to have their own traces, and neither waits for the other."""
    out = public / 'run'
    out.mkdir()
    out.chmod(0o1777)
    env = dict(clean_environment(), TFI_OUTPUT_DIR=str(out))
    running = [subprocess.Popen(as_user(user, ['env', f'LD_PRELOAD={public}/lib/libtfinject.so', str(public / 'lib/script'), 'push=a',
                                               'wait=300', 'call=1', 'pop', 'say=done']), env=env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True) for user in USERS for _ in range(3)]
    for process in running:
        said, err = process.communicate(timeout=COMMAND_TIMEOUT)
        assert (said, CLOSING.sub('', err), process.returncode) == ('done\n', '', 0)
    traces = [path for path in owners(out) if path.suffix == '.tfr']
    assert sorted(path.stat().st_uid for path in traces) == sorted(USERS * 3)
    assert all(stages(scripted.trace(path)) == ['a'] for path in traces)


def test_a_program_that_another_user_executes(run, public):
    """It may not write into the run directory. It runs as without the library and says nothing; TFI_LOG=info says why."""
    it = f'{public}/lib/script push=a pop say=done'
    for level, lines in (None, 0), ('info', 1):
        result = run(['bash', '-c', f'{it}; exec {" ".join(as_user(USERS[0], [it]))}'],
                     {'LD_PRELOAD': f'{public}/lib/libtfinject.so', 'TFI_OUTPUT_DIR': public / f'run{level}', 'TFI_LOG': level}, preload=False)
        assert (result.rc, result.out) == (0, 'done\n' * 2)
        assert result.err.count('nothing is recorded') == lines and (level or not result.err)


def test_a_user_cannot_cut_a_live_file_by_accident(run, public):
    """Writing to it is refused: a shorter file would kill the program that maps it."""
    cut = 'system=for f in $TFI_OUTPUT_DIR/*.live; do truncate -s 0 $f 2>/dev/null && echo cut; cp /etc/passwd $f 2>/dev/null && echo cut; done; true'
    command = as_user(USERS[0], ['env', f'LD_PRELOAD={public}/lib/libtfinject.so', public / 'lib/script', 'push=a', cut, 'push=b', 'pop', 'pop', 'say=end'])
    result = run(command, {'TFI_OUTPUT_DIR': public / 'run'}, preload=False)
    assert (result.rc, result.out, result.err) == (0, 'end\n', '')
    assert sorted(stages(only(scripted.traces(public / 'run')))) == ['a', 'b']


# ---- stopped processes and little memory ----

def stopped_for(run_environment, victim, tmp_path, seconds):
    """Stops a program with two threads, reads its live file meanwhile, and lets it continue to its end."""
    env = dict(run_environment, TFI_OUTPUT_DIR=str(tmp_path / 'run'))
    process = subprocess.Popen([victim('script'), 'push=before', 'call=1', 'pop', 'push=stopped', 'a.say=ready', 'read', 'call=2',
                                'a.call=3', 'pop', *['push=after', 'call=4', 'pop'] * 2000, 'say=end'], env=env,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == 'ready\n'
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        live = only(list((tmp_path / 'run').glob('*.live')))
        slot = next(s for s in slots(live).values() if s.stages)
        assert slot.stages == ['stopped']
        other = execute([victim('script'), 'push=b', 'call=1', 'pop'], dict(env, TFI_OUTPUT_DIR=str(tmp_path / 'other')))
        assert (other.rc, other.err) == (0, '')
        info = execute([built(BUILD / 'tfanalyze'), 'info', tmp_path / 'run', '--format', 'json'], clean_environment())
        assert only(json.loads(info.out)['rows'])['events']['range_end'] == 1
        time.sleep(seconds)
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate('\n', timeout=COMMAND_TIMEOUT)
    finally:
        process.kill()
    assert (out, CLOSING.sub('', err), process.returncode) == ('end\n', '', 0)
    trace = only(scripted.traces(tmp_path / 'run'))
    assert trace.complete and called(trace) == [1, 2, 3] + [4] * 2000
    assert stages(trace) == ['before', 'stopped'] + ['after'] * 2000


@pytest.fixture
def watched_environment(testlib):
    return dict(clean_environment(), LD_PRELOAD=str(testlib))


def check_stopped(watched_environment, victim, tmp_path, analyze, seconds):
    stopped_for(watched_environment, victim, tmp_path, seconds)
    rows = {row['stage']: row for row in analyze('stages', tmp_path / 'run')['rows']}
    assert rows['stopped']['host_us'] >= seconds * 1e6
    assert rows['after']['calls'] == 2000 and rows['after']['max_us'] < rows['stopped']['host_us']


@pytest.mark.slow
def test_stopped_for_three_seconds(watched_environment, victim, tmp_path, analyze):
    """The open stage includes the pause, later stages have their own times, and nothing is lost."""
    check_stopped(watched_environment, victim, tmp_path, analyze, 3)


@pytest.mark.soak
def test_stopped_for_a_minute(watched_environment, victim, tmp_path, analyze):
    """The same for more than the 60 s after which a live file of another host counts as abandoned."""
    check_stopped(watched_environment, victim, tmp_path, analyze, 65)


@pytest.fixture
def memory_group():
    """A new memory cgroup below our own, of version 1 or 2, and the file of its limit; skips if none can be made."""
    for root, entry in ('/sys/fs/cgroup/memory', ':memory:'), ('/sys/fs/cgroup', '0::'):
        for line in Path('/proc/self/cgroup').read_text().splitlines():
            if entry not in line:
                continue
            group = Path(root + line.split(':', 2)[2]) / f'tfi-test-{os.getpid()}'
            try:
                group.mkdir()
            except OSError:
                continue
            for name in 'memory.limit_in_bytes', 'memory.max':
                if not (group / name).exists():
                    continue
                yield group, group / name
                while group.exists():
                    try:
                        group.rmdir()
                    except OSError:
                        time.sleep(0.1)
                return
            group.rmdir()
    pytest.skip('no memory cgroup can be made here')


@pytest.mark.parametrize('megabytes', [64, 16])
def test_in_a_memory_cgroup(same, victim, analyze, tmp_path, memory_group, megabytes):
    """Every call is recorded though the library's shared mapping counts in the cgroup.

    Calls are lost only while a write by the kernel takes longer than a second, and these are counted."""
    group, limit = memory_group
    limit.write_text(f'{megabytes << 20}\n')
    script = f'echo $$ > {group}/cgroup.procs && exec {victim("weather")} million'
    result = same(['sh', '-c', script], {'WEATHER_LOG': tmp_path / 'log'})
    row, = analyze('info', result.dir)['rows']
    assert set(row['lost']) <= {'locked'} and row['ended'] == 'exit'
    assert row['events']['call'] + row['lost'].get('locked', 0) == 1500000


GREEDY = '''
import ctypes, os
open(os.environ['GROUP'] + '/cgroup.procs', 'w').write(str(os.getpid()))
library = ctypes.CDLL(None)
library.tfi_range_push(b'greedy')
library.tfi_mark(b'a moment')
held = []
while True: held.append(b'x' * (1 << 20))
'''


def test_killed_by_a_memory_cgroup(run, analyze, memory_group):
    """The kernel kills the process for its own memory; its records so far are readable."""
    group, limit = memory_group
    limit.write_text(f'{64 << 20}\n')
    result = run(['/usr/bin/env', 'python3', '-c', GREEDY], {'GROUP': group})
    assert result.rc == -signal.SIGKILL, result.err
    row, = analyze('info', result.dir)['rows']
    assert row['events']['mark'] == 1 and not row['complete']


@pytest.mark.parametrize('option, kilobytes', [('-d', 1000), *((o, k) for o in ('-v', '-d') for k in (10000, 20000, 30000, 50000, 100000))])
def test_little_address_space(same, victim, option, kilobytes):
    """Under ulimit -v and -d everything is recorded, or one message says that nothing is, and the program runs."""
    command = ['sh', '-c', f'ulimit {option} {kilobytes}; exec "$@"', 'sh', victim('script'), *STEPS]
    result = same(command, err=None)
    assert all(line.startswith('tfinject: ') for line in result.err.splitlines())
    if 'nothing is recorded' in result.err:
        assert len(result.err.splitlines()) == 1 and not list(result.dir.glob('rank*'))
    else:
        assert called(only(scripted.traces(result.dir))) == [1]


@pytest.mark.parametrize('users', [(USERS[0], 0), (0, USERS[0])], ids=['root second', 'root first'])
def test_another_users_default_directory(testlib, victim, users):
    """Two users in one directory and one minute: neither writes beside the other one's trace, not even root, who could."""
    if os.geteuid() != 0:
        pytest.skip('needs root to become another user')
    with tempfile.TemporaryDirectory(dir='/tmp') as place:
        for name in 'work_dirs', 'work_dirs/profiler_output', 'work_dirs/profiler_output/default':
            (Path(place) / name).mkdir()
            (Path(place) / name).chmod(0o777)
        Path(place).chmod(0o777)
        shutil.copy(testlib, f'{place}/lib.so')
        shutil.copy(victim('script'), place)
        shutil.copy(victim('libdummy.so'), place)
        env = dict(clean_environment(), LD_PRELOAD=f'{place}/lib.so', LD_LIBRARY_PATH=place)
        time.sleep(max(0, 62 - time.time() % 60) if time.time() % 60 > 55 else 0)
        for user in users:
            result = execute(['setpriv', f'--reuid={user}', f'--regid={user}', '--clear-groups', './script', *STEPS], env, place)
            assert result.rc == 0
        for directory in (Path(place) / 'work_dirs/profiler_output/default').iterdir():
            assert {path.stat().st_uid for path in directory.iterdir()} == {directory.stat().st_uid}
        found = {path.stat().st_uid for path in Path(place).rglob('*.tfr')}
        assert found == {0, USERS[0]}, result.err
