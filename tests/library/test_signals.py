"""test_signals - nothing on a hooked path waits for a lock that can't be free: in handlers, in children, in allocators.

The programs are the same with and without the library: `instants` interrupts an operation at many instants, `held` makes
children while a lock is held. `make soak` has 1,000 instants and 10,000 children of each kind.
"""

import ctypes.util
import itertools
import re
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
EACH = [*'cpu gpu mem nccl ops io stack'.split(), ACTIVITIES[-1]]
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
@pytest.mark.parametrize('subject, action, activities', list(itertools.product(SUBJECTS, ACTIONS, EACH)))
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
    held(ends_well, lock, how, activities, 10000 // (len(LOCKS) * len(CHILDREN) * len(ACTIVITIES)) + 1)


# Threads of Python take the locks of libc and of the loader, and the main thread forks.
PYTHON_FORKS = '''
import ctypes, locale, os, socket, sys, threading, time
libc, count = ctypes.CDLL(None), int(sys.argv[1])
stop = False
def again(use):
    while not stop:
        use()
def loads():
    ctypes.CDLL("libm.so.6")
    libc.dlclose(ctypes.c_void_p(libc.dlopen(b"libutil.so.1", 2)))
libc.dlopen.restype = ctypes.c_void_p
uses = [loads, lambda: socket.getaddrinfo("127.0.0.1", 80), lambda: time.strftime("%Z", time.localtime()), lambda: locale.setlocale(locale.LC_ALL, "C"),
        lambda: bytearray(200000), lambda: libc.fflush(None), lambda: threading.Thread(target=int).start()]
threads = [threading.Thread(target=again, args=(use,)) for use in uses]
for t in threads: t.start()
ends = []
for i in range(count):
    child = os.fork()
    if not child:
        with open("/dev/null", "w") as file: file.write("x")
        os._exit(5)
    until = time.monotonic() + 100
    while not (done := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < until: time.sleep(0.0005)
    if not done[0]:
        os.kill(child, 9)
        done = os.waitpid(child, 0)
    ends.append(done[1])
stop = True
for t in threads: t.join()
print(len(ends), sum(end != 5 << 8 for end in ends), "wrong")
'''


def forks_of_python(run, python, count, activities):
    command = [python, '-W', 'ignore', '-c', PYTHON_FORKS, count]
    result = run(command, {'TFI_ACTIVITIES': activities, 'TFI_STAGES': '__main__:loads'}, timeout=600)
    assert (result.rc, result.out, result.err) == (0, f'{count} 0 wrong\n', '')


@pytest.mark.slow
def test_children_of_python(run, python):
    """os.fork() while other threads import, look names up and change the locale."""
    forks_of_python(run, python, 30, 'io,stack')


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize('activities', ACTIVITIES)
def test_many_children_of_python(run, python, activities):
    forks_of_python(run, python, 1000, activities)


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


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize('name, activities', list(itertools.product(ALLOCATORS, EACH)))
def test_programs_with_other_allocators(run, lib, victim, name, activities):
    """Threads, exceptions, handlers and children, with each activity, the blocks recorded or not."""
    programs = [('mixed', '12'), ('instants', 'malloc', 'calls', '60'), ('instants', 'fork', 'stages', '60'), ('held', 'malloc', 'fork', '20'),
                ('held', 'threads', 'clone', '20'), ('weather', 'threads'), ('weather', 'cancel')]
    for program, *arguments in programs:
        def once(*before, program=program, arguments=arguments):
            preload = ' '.join(map(str, [*before, allocator(name)]))
            environment = {'TFI_ACTIVITIES': activities, 'TFI_HOST_ALLOC_KB': '1' if len(before) > 1 else None, 'WEATHER_LOG': '/dev/null'}
            result = run([victim(program), *arguments], environment, preload=preload)
            return result.rc, sorted(result.out.splitlines()), result.err
        assert once(lib) == once(lib.with_name('libtfinject-alloc.so'), lib) == once(), (program, arguments)


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
    alone, watched = run([program], preload=False), run([program], {'TFI_ACTIVITIES': 'io'})
    assert alone.rc == watched.rc == 66


# The program that sanitizers judge: its argument selects the mistake.
MISTAKES = r'''
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static int shared, guarded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *what;
static void *work(void *data)
{
    char name[32];
    for (int i = 0; i < 50; i++) {
        pthread_mutex_lock(&lock);
        guarded++;
        pthread_mutex_unlock(&lock);
        snprintf(name, sizeof name, "file-%ld-%d", (long)data, i);
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        char *text = strdup(name);
        if (write(fd, text, strlen(text)) < 0 || lseek(fd, 0, SEEK_SET) < 0 || read(fd, name, 4) != 4) abort();
        free(text);
        close(fd);
    }
    if (strcmp(what, "race") == 0) shared++;
    if (strcmp(what, "leak") == 0) {
        char *volatile lost = malloc(100);
        lost = 0;
    }
    return data;
}
int main(int argc, char **argv)
{
    pthread_t thread[4];
    what = argc > 1 ? argv[1] : "";
    for (long i = 0; i < 4; i++) pthread_create(&thread[i], 0, work, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(thread[i], 0);
    volatile char *block = malloc(100);
    if (strcmp(what, "overflow") == 0) block[100] = 1;
    free((void *)block);
    if (strcmp(what, "freed") == 0) block[3] = 1;
    if (fork() == 0) _exit(3);
    int status;
    wait(&status);
    printf("%d %d\n", guarded, WEXITSTATUS(status));
    return 4;
}
'''
SANITIZED = {'thread': ['', 'race'], 'address': ['', 'overflow', 'freed', 'leak'], 'leak': ['', 'leak'], 'undefined': ['']}


@pytest.mark.slow
@pytest.mark.parametrize('kind', SANITIZED)
def test_verdicts_of_sanitizers(run, tmp_path, kind):
    """Programs with threads, files and a child are found guilty of their own mistakes, and of no other."""
    static = {'address': ['-static-libasan'], 'thread': ['-static-libtsan']}.get(kind, [])  # none demands to be loaded first
    program = compiled(tmp_path, 'mistakes', MISTAKES, '-g', f'-fsanitize={kind}', *static)
    for mistake, activities in itertools.product(SANITIZED[kind], ['io', 'cpu,gpu,mem,nccl,ops,io,stack']):
        found = []
        for preload in (False, True):
            result = run([program, *mistake.split()], {'TFI_ACTIVITIES': activities}, preload=preload)
            found.append((result.rc, result.out, [re.sub(r'0x[0-9a-f]+|\d+', '#', line) for line in result.err.splitlines() if 'SUMMARY' in line or 'ERROR' in line]))
        assert found[0] == found[1], (mistake, activities)
        assert bool(found[0][2]) == bool(mistake)


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
    watched = run([program], {'TFI_ACTIVITIES': 'io'})
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
