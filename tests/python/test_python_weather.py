"""test_python_weather - whatever a program does to its interpreter, it sees nothing of the library there.

Each script prints its observations. Output, errors and exit code are the same with and without the library.
"""

import json
import shutil

import pytest

import pythons
from conftest import clean_environment, execute

by_version = pythons.by_version()
WORK = 'def plain(x, y=2):\n    return x\n'


@pytest.fixture
def same(run, tmp_path):
    """same(python, script, stages, options=(), work=WORK, rc=0, env={}, said='') -> calls by stage, of a script beside
    work.py. `said` are the lines of the library."""
    def same(python, script, stages, options=(), work=WORK, rc=0, env=None, said=''):
        (tmp_path / 'script.py').write_text(script)
        (tmp_path / 'work.py').write_text(work)
        command = [python, '-B', *options, 'script.py']
        bare = run(command, preload=False)
        watched = run(command, {'TFI_STAGES': stages, **(env or {})})
        assert bare.rc == rc, bare.err
        assert (watched.rc, watched.out, watched.err) == (bare.rc, bare.out, said + bare.err)
        found = {}
        for path in watched.dir.glob('*.timing.json'):
            for stage, said in json.loads(path.read_text())['stages'].items():
                found[stage] = found.get(stage, 0) + said['calls']
        return found
    return same


ALIVE = '''
import asyncio, gc, weakref, work
gc.disable()
class Tensor: pass
def give(function):
    made = []
    def make():
        tensor = Tensor()
        made.append(weakref.ref(tensor))
        return tensor
    print(function.__name__, function(make(), made), made[0]() is None)
    return make, made
give(work.deletes)
give(work.replaces)
make, made = give(work.raises)
print(asyncio.run(work.waits(make(), made)), made[-1]() is None)
'''
DELETES = '''
import asyncio
def deletes(x, made):
    del x
    return made[-1]() is None
def replaces(x, made, *rest, key=1, **more):
    x = (lambda: x)
    x = None
    return made[-1]() is None
def raises(x, made):
    try:
        x = x.absent
    except AttributeError:
        x = None
    return made[-1]() is None
async def waits(x, made):
    del x
    await asyncio.sleep(0)
    return made[-1]() is None
'''


@by_version
def test_nothing_is_kept_alive(same, python):
    """Objects that a stage deletes are gone without a run of the garbage collector; on a GPU they would hold memory. In 3.11
    the caller holds the arguments while a function runs, as in all versions before it."""
    stages = 'deletes', 'replaces', 'raises', 'waits'
    script = ALIVE.replace('function(make(), made)', 'function(*[make()], made)') if python.version[:2] == (3, 11) else ALIVE
    assert same(python.path, script, ','.join(f'work:{n}' for n in stages), work=DELETES) == dict.fromkeys(stages, 1)


def test_modules_are_not_kept_alive(same, python):
    script = '''
import gc, torch, weakref
gc.disable()
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.part(x)
model, x = Model(), torch.ones(2, 2)
model(x)
refs = weakref.ref(model), weakref.ref(x)
del model, x
print(*(ref() is None for ref in refs))
'''
    assert same(python, script, '', env={'TFI_MODULE_DEPTH': '2'}) == {'Model': 1, 'Model.part': 1}


TIMER = '''
import signal, time, work
class Late(Exception): pass
def late(number, frame):
    raise Late
def spin(end):
    while time.perf_counter() < end:
        work.plain(1, [1, 2, 3])
signal.signal(signal.SIGALRM, late)
lost = 0
for i in range(300):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003)
        try:
            spin(time.perf_counter() + 5)
            lost += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Late:
        pass
print("lost", lost)
'''


@by_version
def test_exceptions_of_signal_handlers_are_the_programs(same, python):
    """A handler may raise while our code runs, in any of hundreds of calls; the function is still a stage afterwards."""
    assert same(python.path, TIMER, 'work:plain')['plain'] > 300


HOOK = '''
import sys
refused = sys.argv[1].split(",")
def hook(event, args):
    if event in refused:
        raise RuntimeError("no " + event)
import work
sys.addaudithook(hook)
print(work.plain(1, 2), work.plain([1]))
import other
print(other.plain(3))
'''


@pytest.mark.parametrize('refused', ['sys._getframe', 'object.__getattr__', 'compile,exec', 'open'])
@by_version
def test_an_audit_hook_that_raises(run, tmp_path, python, refused):
    """The hook's refusals hit only us, not the program, and earlier stages are still stages."""
    for name, text in ('script.py', HOOK), ('work.py', WORK), ('other.py', WORK):
        (tmp_path / name).write_text(text)
    command = [python.path, '-B', 'script.py', refused]
    bare, watched = run(command, preload=False), run(command, {'TFI_STAGES': 'work:plain,other:plain'})
    lines = [line for line in watched.err.splitlines() if not line.startswith('tfinject: ')]
    assert (watched.rc, watched.out, lines) == (bare.rc, bare.out, bare.err.splitlines())
    assert len(watched.err.splitlines()) - len(lines) <= 1, watched.err
    path, = watched.dir.glob('*.timing.json')
    found = {stage: said['calls'] for stage, said in json.loads(path.read_text())['stages'].items()}
    assert found['work:plain'] == 2 and (refused != 'sys._getframe' or found['other:plain'] == 1), found


FORGED = '''
import sys, work
sys.audit("exec")
sys.audit("exec", 5)
sys.audit("import")
print(work.plain(1))
'''


@by_version
def test_events_of_the_programs_own(run, tmp_path, python):
    """While a function of the script is looked for, the program sends the events that we wait for, with other arguments."""
    (tmp_path / 'script.py').write_text(FORGED)
    (tmp_path / 'work.py').write_text(WORK)
    result = run([python.path, '-B', 'script.py'], {'TFI_STAGES': '__main__:absent,work:plain'})
    assert (result.rc, result.out) == (0, '1\n') and 'has failed' not in result.err, result.err
    path, = result.dir.glob('*.timing.json')
    assert json.loads(path.read_text())['stages']['plain']['calls'] == 1


@by_version
def test_warnings_are_given_once(same, python):
    """The compiler's warnings appear once, though functions are compiled again."""
    script = 'def local(x):\n    return x is 1, "\\d"\nimport work\nprint(local(1), work.plain(2), work.said)\n'
    work = 'def plain(x):\n    return x is 1, b"\\d"\nsaid = plain(3) is ()\n'
    assert same(python.path, script, '__main__:local,work:plain', work=work) == {'local': 1, 'plain': 1}
    assert same(python.path, script, '__main__:local,work:plain', ('-W', 'always'), work=work)


MONITORS = '''
import sys
if hasattr(sys, "monitoring"):
    for tool in 0, 1, 2, 3, 4:
        sys.monitoring.use_tool_id(tool, "theirs")
    if %r:
        sys.monitoring.use_tool_id(5, "theirs")
import work, json
print(work.plain(1), json.dumps([1]), work.plain.__name__)
'''


@pytest.mark.parametrize('every', [False, True])
@by_version
def test_tools_of_the_programs_own(same, python, every):
    """The program takes all tools of sys.monitoring, or all but one. Without a tool there are no stages, and a line says so."""
    none = every and python.version >= (3, 12)
    lines = [f'tfinject: TFI_STAGES: {name} cannot become a stage: sys.monitoring has no free tool id\n' for name in ('work:plain', 'json:dumps')]
    found = same(python.path, MONITORS % every, 'work:plain,json:dumps', said=''.join(lines) if none else '')
    assert found == ({} if none else {'plain': 1, 'dumps': 1})


@pytest.mark.parametrize('tool', ['cProfile', 'pdb', 'trace'])
@by_version
def test_a_script_below_another(run, tmp_path, python, tool):
    """A function of __main__ is a stage under Python's profiler, debugger and tracer."""
    (tmp_path / 'script.py').write_text('def local(x):\n    return x + 1\nprint(local(1))\n')
    options = {'cProfile': ['-o', 'stats'], 'pdb': ['-c', 'continue', '-c', 'quit'], 'trace': ['--count', '-C', 'counts']}[tool]
    command = [python.path, '-B', '-m', tool, *options, 'script.py']
    bare, watched = run(command, preload=False, stdin=''), run(command, {'TFI_STAGES': '__main__:local'}, stdin='')
    assert (watched.rc, watched.out, watched.err) == (bare.rc, bare.out, bare.err) and bare.out.startswith('2\n')
    path, = watched.dir.glob('*.timing.json')
    assert json.loads(path.read_text())['stages']['local']['calls'] == 1


SHOWS = '''
import asyncio, sys, work
def end():
    raise KeyboardInterrupt
async def main():
    asyncio.get_running_loop().call_soon(end)
    await asyncio.sleep(9)
try:
    work.called(0)
except ZeroDivisionError as error:
    trace = error.__traceback__
    while trace:
        print(trace.tb_frame.f_code.co_name, trace.tb_lineno)
        trace = trace.tb_next
asyncio.run(main())
'''


@pythons.by_version((3, 11))
def test_tracebacks_are_the_programs(same, python):
    """Tracebacks have no frame of ours."""
    assert same(python.path, SHOWS, 'work:called', work='def called(x):\n    return 1 // x\n', rc=-2) == {'called': 1}


def test_tracebacks_through_modules(same, python):
    script = '''
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        raise ValueError("here")
Model()(1)
'''
    assert same(python, script, '', env={'TFI_MODULE_DEPTH': '1'}, rc=1) == {'Model': 1}


FREE = 'const char *Py_GetVersion(void) { return "3.14.0 free-threading build (main, Oct  7 2025, 00:00:00) [GCC]"; }\n'


def test_builds_without_a_lock_are_left_alone(run, tmp_path, lib):
    """Simulated: a library in front of the interpreter's reports the version of a build without a lock."""
    python = next((p.path for p in pythons.SEEN if p.shared), None)
    if not python:
        pytest.skip('no Python with a shared library is installed')
    (tmp_path / 'free.c').write_text(FREE)
    execute([shutil.which('gcc'), '-shared', '-fPIC', '-o', tmp_path / 'libfree.so', tmp_path / 'free.c'], clean_environment())
    (tmp_path / 'work.py').write_text(WORK + 'print(plain(1))\n')
    result = run([python, '-B', 'work.py'], {'TFI_STAGES': '__main__:plain'}, preload=f'{lib} {tmp_path}/libfree.so')
    assert (result.rc, result.out) == (0, '1\n') and not result.dir.exists()
    assert result.err == 'tfinject: Python functions and modules are not recorded: this Python has no global lock\n'
