"""test_signals - nothing on a hooked path waits for a lock that can't be free: in handlers, in children, in allocators.

The programs are the same with and without the library: `instants` interrupts an operation at many instants, `held` makes
children while a lock is held. `make soak` has 1,000 instants and 10,000 children of each kind.
"""

import ctypes.util
import itertools

import pytest

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
    def ends_well(program, *arguments, activities, preload=True, says):
        result = run([victim(program), *arguments], {'TFI_ACTIVITIES': activities}, preload=preload)
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
