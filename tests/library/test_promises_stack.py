"""test_promises_stack - the library wakes, records and finishes with less than 4 KiB of stack.

The first event may come in a signal handler or on a thread with the smallest stack, and so may the end: a crash handler
on an alternative stack that calls _exit is an ordinary program. tests/victims/stack.c measures each step's depth on a
painted stack, and runs on small stacks.
"""

import itertools
import subprocess

import pytest

import scripted
from scripted import only

LIMIT = 4096
SETTINGS = {
    'plain': {}, 'complaints': {'TFI_NO_SUCH': '1', 'TFI_MAX_MB': 'much', 'TFI_LOG': 'debug'},
    'console': {'TELEFUSER_PROFILE_DEBUG': 'true'},
    'metadata': {'TFI_METADATA': 'a=b,c=d', 'TFI_PIPELINE_NAME': 'p' * 400},
    'no live directory': {'TFI_LIVE_DIR': '/proc/no'}, 'no directory': {'TFI_OUTPUT_DIR': '/proc/no'},
    'full': {'TFI_MAX_MB': '1'}, 'trigger': {'TFI_TRIGGER': 'file:/'}, 'signal': {'TFI_TRIGGER': 'signal:10'},
    'schedule': {'TFI_SCHEDULE': 'wait=1,active=1'}, 'names': {'ENABLE_PROFILER_NAMES': 'n1*,m*'},
    'job': {'TFI_OUTPUT_DIR': None, 'SLURM_JOB_ID': '1'},
    'long directory': {'TFI_OUTPUT_DIR': '/proc' + '/.' * 1500 + '/no'}}
SMALL = [('thread', 16384, 0), ('thread exit', 16384, 7), ('awake exit', 16384, 7), ('handler', 8192, 0),
         ('handler exit', 8192, 7), ('coroutine', 8192, 0)]
ROOMY = [('thread', 1 << 18, True), ('handler', 1 << 16, True), ('awake exit', 1 << 18, True), ('coroutine', 1 << 18, False)]


@pytest.mark.parametrize('setting', SETTINGS)
def test_depth(run, victim, setting):
    """No step goes 4 KiB below the caller's frame. LD_BIND_NOW keeps the program's own linking out of the measurement."""
    result = run([victim('stack')], {**SETTINGS[setting], 'LD_BIND_NOW': '1'})
    *lines, last = result.out.splitlines()
    depths = {step: int(depth) for step, depth in (line.split(': ') for line in lines)}
    assert (result.rc, last, len(depths)) == (0, 'done', 5)
    assert max(depths.values()) < LIMIT, depths
    assert setting == 'no directory' or depths['wake'] > 500  # the process woke


@pytest.mark.parametrize('mode, size, status', SMALL)
def test_small_stacks(run, victim, mode, size, status):
    """The first event, or the end, on the smallest stacks that programs use: status and output as without the library."""
    words = [victim('stack'), mode, size]
    bare, watched = run(words, preload=False), run(words)
    assert bare.rc == status
    assert (watched.rc, watched.out, watched.err) == (bare.rc, bare.out, bare.err)
    assert len(list(watched.dir.glob('*.timing.json'))) == 1


BLOCKS = r'''
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
static long taken; /* bytes of the stack that the handler uses itself */
static void handler(int number)
{
    char *volatile room = __builtin_alloca(taken);
    (void)number;
    (void)room;
    for (int i = 0; i < 300; i++) {
        int fd = open("/proc/self/exe", O_RDONLY);
        munmap(mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0), 4096);
        close(fd);
        free(malloc(100000));
    }
}
int main(int argc, char **argv)
{
    enum { SIZE = 8192, GUARD = 4096 };
    char *memory = mmap(0, SIZE + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = memory + GUARD, .ss_size = SIZE};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    taken = argc > 1 ? atol(argv[1]) : 0;
    mprotect(memory, GUARD, PROT_NONE);
    sigaltstack(&stack, 0);
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
    raise(SIGUSR1);
    return 5;
}
'''


@pytest.mark.parametrize('activities', ['mem,stack', 'mem,io,stack'])
def test_blocks_on_a_small_stack(run, lib, tmp_path, activities):
    """A handler on a stack of 8 KiB allocates blocks that are recorded with their call stacks."""
    (tmp_path / 'blocks.c').write_text(BLOCKS)
    subprocess.run(['gcc', '-O1', '-o', tmp_path / 'blocks', tmp_path / 'blocks.c'], check=True)
    settings = {'TFI_ACTIVITIES': activities, 'TFI_HOST_ALLOC_KB': '1', 'TFI_LOG': 'error'}
    for preload, taken in itertools.product((lib, f'{lib.with_name("libtfinject-alloc.so")} {lib}'), range(0, 600, 50)):
        assert run([tmp_path / 'blocks', taken], settings, preload=preload).rc == 5, taken


def taken(result):
    """Whether each stage of a run has a call stack, and the number of stages counted as without one."""
    trace = only(scripted.traces(result.dir))
    drops = {r.values['cause']: r.values['count'] for r in trace.records if r.kind == 'drop'}
    return [bool(r.values['stack']) for r in trace.records if r.kind == 'range_begin'], drops.get(20, 0)


@pytest.mark.parametrize('mode, size, status', SMALL)
def test_no_call_stacks_of_small_stacks(run, victim, mode, size, status):
    """With the activity `stack`, a stage on a small stack is recorded without a call stack, and counted."""
    words = [victim('stack'), mode, size]
    bare, watched = run(words, preload=False), run(words, {'TFI_ACTIVITIES': 'cpu,stack'})
    assert (watched.rc, watched.out, watched.err) == (status, bare.out, bare.err)
    stacks, without = taken(watched)
    assert without == 1 == stacks.count(False)


@pytest.mark.parametrize('mode, size, known', ROOMY)
def test_call_stacks_of_larger_stacks(run, victim, mode, size, known):
    """Call stacks are taken on stacks with room, in handlers too; in coroutines they are not."""
    stacks, without = taken(run([victim('stack'), mode, size], {'TFI_ACTIVITIES': 'cpu,stack'}))
    assert set(stacks) == {known} and without == (0 if known else 1)
