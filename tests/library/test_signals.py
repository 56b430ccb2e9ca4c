"""test_signals - nothing on a hooked path waits for a lock that can't be free: in handlers, in children, in allocators.

The programs are the same with and without the library: `instants` interrupts an operation at many instants, `held` makes
children while a lock is held. `make soak` has 1,000 instants and 10,000 children of each kind.
"""

import ctypes.util
import itertools
import subprocess
import time

import pytest

import iotrace
import scripted
from conftest import clean_environment

SUBJECTS = ['malloc', 'fork', 'dlopen', 'pthread_create', 'exit', 'wake', 'chunk']
ACTIONS = ['calls', 'many', 'stages', 'exec']
LOCKS = ['objects', 'dlopen', 'atexit', 'atfork', 'stdio', 'malloc', 'resolver', 'time', 'locale', 'threads', 'environment']
CHILDREN = ['fork', 'clone', 'vfork', 'spawn']
ACTIVITIES = ['io', 'cpu,gpu,mem,nccl,ops', 'cpu,gpu,mem,nccl,ops,io,stack']
ALLOCATORS = ['jemalloc', 'tcmalloc_minimal', 'mimalloc']
ENDS = 7


@pytest.fixture
def ends_well(run, victim):
    """ends_well(program, *arguments, activities, preload=True): it ends as without the library, and says nothing else."""
    def ends_well(program, *arguments, activities, preload=True, says, env=None):
        result = run([victim(program), *arguments], {'TFI_ACTIVITIES': activities, **(env or {})}, preload=preload)
        assert (result.rc, result.out, result.err) == (ENDS, says, ''), (arguments, activities)
        return result
    return ends_well


def interrupted(ends_well, subject, action, activities, instants, **options):
    ends_well('instants', subject, action, instants, activities=activities, says='0 failed\n', **options)


def held(ends_well, lock, how, activities, children):
    ends_well('held', lock, how, children, activities=activities, says='0 hung\n')


@pytest.mark.slow
@pytest.mark.parametrize('subject', SUBJECTS)
def test_handlers(ends_well, subject):
    """A handler may make calls and open stages wherever it interrupts the program.

    A full chunk used to start a thread by pthread_create, whose calloc waited for the interrupted malloc."""
    for action, activities in itertools.product(ACTIONS[:3], ACTIVITIES[::2]):
        interrupted(ends_well, subject, action, activities, 30)


@pytest.mark.parametrize('subject', ['malloc', 'dlopen'])
def test_handlers_with_stages_that_wait(ends_well, subject):
    """A stage in a handler waits for the device without asking the loader for it, which allocates and takes a lock.

    Every edge used to: a child of a fork even lost memory of ours, which the loader took for its own."""
    interrupted(ends_well, subject, 'stages', 'io', 20, env={'TFI_SYNC_STAGES': '1'})


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize('subject, action, activities', list(itertools.product(SUBJECTS, ACTIONS, ACTIVITIES)))
def test_handlers_at_many_instants(ends_well, subject, action, activities):
    interrupted(ends_well, subject, action, activities, 1000)


@pytest.mark.slow
@pytest.mark.parametrize('how', CHILDREN)
def test_children(ends_well, how):
    """A child's first event waits for no lock that a thread of its parent held, whom the child does not have.

    The wake used to register handlers and to ask the loader for its objects."""
    for lock in LOCKS:
        held(ends_well, lock, how, 'io,stack', 3)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize('lock, how, activities', list(itertools.product(LOCKS, CHILDREN, ACTIVITIES)))
def test_many_children(ends_well, lock, how, activities):
    held(ends_well, lock, how, activities, 10000 // (len(LOCKS) * len(CHILDREN) * len(ACTIVITIES)))


CHILD = 'import os\nif os.fork():\n    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))\nfor i in range(3000):\n    os.access("/dev/null", 0)\nos._exit(3)'


def test_events_in_the_child_before_our_fork_handler(run, lib, victim, python):
    """A handler may open the child's trace before the library's own fork handler runs, which then forgets nothing.

    It used to start a second thread on the stack of the first."""
    result = run([python, '-S', '-c', CHILD], {'TFI_ACTIVITIES': 'io'}, preload=f'{lib} {victim("libearly_child.so")}')
    assert (result.rc, result.err) == (3, '')
    counts = [sum(r.name == 'access' for r in iotrace.records(trace)) for trace in scripted.traces(result.dir)]
    assert sorted(counts)[-1] == 6000 and len(counts) <= 2


def allocator(name):
    found = ctypes.util.find_library(name)
    assert found, f'lib{name} is missing; `scripts/bootstrap test` installs it'
    return found


@pytest.mark.slow
@pytest.mark.parametrize('name', ALLOCATORS)
def test_allocators(run, ends_well, lib, victim, name):
    """The calls of an allocator are hooked too, and come with its locks held: at its start before our constructor."""
    ours = f'{lib.with_name("libtfinject-alloc.so")} {lib}'
    for preload, activities in itertools.product((str(lib), ours), ('io', 'mem,io,stack')):
        interrupted(ends_well, 'malloc', 'many', activities, 50, preload=f'{preload} {allocator(name)}')


# The calls that end or replace a process, as another preloaded library behind ours sees them.
NEXT = r'''
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
static void say(const char *name) { (void)!write(1, name, strlen(name)); (void)!write(1, "\n", 1); }
#define NEXT(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))
int execve(const char *path, char *const argv[], char *const envp[]) { say("execve"); return NEXT(execve)(path, argv, envp); }
int execv(const char *path, char *const argv[]) { say("execv"); return NEXT(execv)(path, argv); }
int execvp(const char *file, char *const argv[]) { say("execvp"); return NEXT(execvp)(file, argv); }
int fexecve(int fd, char *const argv[], char *const envp[]) { say("fexecve"); return NEXT(fexecve)(fd, argv, envp); }
int kill(pid_t pid, int number) { say("kill"); return NEXT(kill)(pid, number); }
void _exit(int status) { say("_exit"); NEXT(_exit)(status + 1); __builtin_unreachable(); }
void _Exit(int status) { say("_Exit"); NEXT(_Exit)(status + 1); __builtin_unreachable(); }
'''
ENDING = r'''
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char *arguments[] = {"x", 0};
    close(open("/dev/null", O_RDONLY));
    kill(getpid(), 0);
    execve("/nowhere", arguments, environ);
    execv("/nowhere", arguments);
    execvp("/nowhere", arguments);
    fexecve(-1, arguments, environ);
    if (argc > 1) _Exit(5);
    (void)argv;
    _exit(5);
}
'''
RACE = r'''
#include <pthread.h>
#include <unistd.h>
static int x;
static void *add(void *data) { x++; return data; }
int main(void)
{
    pthread_t one, two;
    pthread_create(&one, 0, add, 0);
    pthread_create(&two, 0, add, 0);
    pthread_join(one, 0);
    pthread_join(two, 0);
    _exit(0);
}
'''


def compiled(folder, name, text, *options):
    (folder / f'{name}.c').write_text(text)
    subprocess.run(['gcc', '-O1', f'{name}.c', '-o', name, *options, '-pthread', '-ldl'], cwd=folder, check=True, env=clean_environment())
    return folder / name


@pytest.mark.parametrize('arguments', [(), ('_Exit',)])
def test_the_next_definitions(run, lib, tmp_path, arguments):
    """Calls that end or replace the process reach the library behind ours. They used to go straight to the kernel."""
    behind, program = compiled(tmp_path, 'behind.so', NEXT, '-shared', '-fPIC'), compiled(tmp_path, 'ending', ENDING)
    alone = run([program, *arguments], preload=behind)
    watched = run([program, *arguments], {'TFI_ACTIVITIES': 'io'}, preload=f'{lib} {behind}')
    assert alone.rc == 6 and len(alone.out.split()) == 6
    assert (watched.rc, watched.out, watched.err) == (alone.rc, alone.out, '')


def test_verdict_of_a_sanitizer(run, tmp_path):
    """A data race that ThreadSanitizer finds ends with its status, and a process with io ends at all."""
    program = compiled(tmp_path, 'race', RACE, '-g', '-fsanitize=thread')
    alone, watched = run([program], preload=False), run([program], {'TFI_ACTIVITIES': 'io'}, timeout=30)
    assert alone.rc == watched.rc == 66


INSIDE = {'instants': ('malloc', 'many', 3), 'held': ('malloc', 'fork', 2), 'weather': ('forks',), 'script': ('push=a', 'call=1', 'pop')}


@pytest.mark.parametrize('activities', ['io', 'cpu,gpu,mem,nccl,ops,io,stack'])
@pytest.mark.parametrize('program', INSIDE)
def test_nothing_that_locks_is_called_inside(run, victim, testlib, tmp_path, program, activities):
    """From inside a hook, at wake and at the end no function is called that allocates, loads, starts threads or formats.

    Preloaded before the library, libinside.so has these functions and aborts."""
    arguments = [victim(program), *INSIDE[program]]
    environment = {'TFI_ACTIVITIES': activities, 'WEATHER_LOG': tmp_path / 'log'}
    watched = run(arguments, environment, preload=f'{victim("libinside.so")} {testlib}')
    assert watched.rc == run(arguments, environment, preload=False).rc and watched.err == ''
    assert any(trace.records for trace in scripted.traces(watched.dir))


LARGE = r'''
#include <errno.h>
#include <unistd.h>
__thread char large[BYTES];
int main(void)
{
    char *beside = (char *)&errno;
    for (int i = 0; i < 3000; i++) if (close(-1) != -1 || errno != EBADF) return 1;
    large[0] = *beside;
    usleep(20000);
    return 5;
}
'''


@pytest.mark.parametrize('kilobytes', [800, 8192])
def test_large_thread_local_variables(run, tmp_path, kilobytes):
    """The library's own thread has room for all of a program's thread-local variables, or is not started.

    Beyond 256 KiB it used to write its errno outside its memory, which ended programs with ThreadSanitizer."""
    program = compiled(tmp_path, 'large', LARGE, f'-DBYTES=({kilobytes} << 10)')
    watched = run([program], {'TFI_ACTIVITIES': 'io'}, timeout=30)
    assert (watched.rc, watched.out, watched.err) == (5, '', '')
    trace, = scripted.traces(watched.dir)
    assert len(iotrace.records(trace)) == 3000


FAKE = r'''
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *t)
{
    int result = syscall(SYS_clock_gettime, clock, t);
    long long ns = (t->tv_sec * 1000000000LL + t->tv_nsec) * 100;
    t->tv_sec = ns / 1000000000;
    t->tv_nsec = ns % 1000000000;
    return result;
}
'''


def test_a_library_that_fakes_the_time(run, lib, victim, tmp_path):
    """The trace's clocks are the kernel's: its rate used to be off by a factor of 100."""
    fake = compiled(tmp_path, 'fake.so', FAKE, '-shared', '-fPIC')
    began = time.monotonic_ns()
    result = run([victim('instants'), 'malloc', 'stages', 3], preload=f'{lib} {fake}')
    elapsed = time.monotonic_ns() - began
    assert result.rc == ENDS
    for trace in scripted.traces(result.dir):
        clocks = [r.values['value'] for r in trace.records if r.kind == 'clock' and r.values['clock'] == 1]
        assert clocks and max(clocks) - min(clocks) <= elapsed


MAPS = r'''
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
int main(void)
{
    for (int i = 0; i < 5000; i++) mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *map = mmap(0, 4096, PROT_READ, MAP_PRIVATE, open("maps.c", O_RDONLY), 0);
    return madvise(map, 4096, MADV_SEQUENTIAL) + munmap(map, 4096);
}
'''


def test_memory_without_a_file(run, tmp_path):
    """Anonymous memory is no file: it used to fill the table of mappings, and the calls on files had no path then."""
    result = run([compiled(tmp_path, 'maps', MAPS)], {'TFI_ACTIVITIES': 'io'})
    calls = [r for trace in scripted.traces(result.dir) for r in iotrace.records(trace) if r.name in ('mmap', 'madvise', 'munmap')]
    assert result.rc == 0 and [(r.name, r.path.rsplit('/', 1)[-1]) for r in calls] == [(n, 'maps.c') for n in ('mmap', 'madvise', 'munmap')]


LARGE_MAPS = r'''
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void)
{
    enum { PAGE = 4096 };
    int file = open("large", O_RDWR | O_CREAT, 0600);
    size_t bytes = (size_t)20 << 30, ends[] = {0, bytes / 2, bytes - PAGE};
    if (ftruncate(file, (off_t)bytes) != 0) return 1;
    char *map = mmap(0, bytes, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, file, 0);
    char *none = mmap(0, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3; i++) madvise(map + ends[i], PAGE, MADV_RANDOM);
    madvise(none, PAGE, MADV_RANDOM);
    munmap(map, bytes);
    mmap(map, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    madvise(map, PAGE, MADV_NORMAL);
    return 0;
}
'''


def test_a_large_mapping(run, tmp_path):
    """Calls on any part of a mapping name its file; after its end, and beside it, no call on memory does."""
    result = run([compiled(tmp_path, 'maps', LARGE_MAPS)], {'TFI_ACTIVITIES': 'io'})
    calls = [r for trace in scripted.traces(result.dir) for r in iotrace.records(trace) if r.name in ('mmap', 'madvise', 'munmap')]
    named = [r.name for r in calls if r.path and r.path.endswith('/large')]
    assert result.rc == 0 and named == ['mmap', 'madvise', 'madvise', 'madvise', 'munmap'] and len(calls) == len(named)


# ---- credentials ----

def test_users_and_groups(run, victim):
    """The background thread gives up the rights that the program gives up."""
    result = run([victim('credentials')], iotrace.ON)
    assert result.rc == 0, result.out + result.err
    assert result.out.splitlines()[0] == 'before: 2 threads, 3 lines'  # there is a thread of ours
    assert [line.split(', ')[1] for line in result.out.splitlines()] == ['3 lines'] * 3, result.out
