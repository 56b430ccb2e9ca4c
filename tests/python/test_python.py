"""test_python - the library's way into the interpreter: every way to start one, every version here, every failure.

A program's output and exit status are the same with and without the library in each test.
"""

import json
import re
import subprocess
from pathlib import Path

import pytest

import pythons
from conftest import AT_REST, ROOT, clean_environment, execute

SCRIPTS = ROOT / 'tests' / 'functions'
by_version = pythons.by_version()

WORK = '''
import sys
def work(n):
    return n + len(b'1')
print(work(1), sys.argv[1:], sorted(set(globals()) - {'__cached__'}))
'''
MODES = {
    'script': (['work.py', 'a'], None),
    'module': (['-m', 'work', 'a'], None),
    'package': (['-m', 'package', 'a'], None),
    'directory': (['package', 'a'], None),
    'command': (['-c', WORK, 'a'], None),
    'stdin': (['-', 'a'], WORK),
    'no-site': (['-S', 'work.py'], None),
    'no-environment': (['-E', 'work.py'], None),
    'isolated': (['-I', '-S', '-E', '-B', 'work.py'], None),
    'optimised': (['-OO', 'work.py'], None),
    'development': (['-X', 'dev', 'work.py'], None),
    'warnings-are-errors': (['-W', 'error', '-bb', 'work.py'], None),
}


@pytest.fixture
def place(tmp_path):
    (tmp_path / 'work.py').write_text(WORK)
    (tmp_path / 'package').mkdir()
    (tmp_path / 'package' / '__main__.py').write_text(WORK)
    return tmp_path


def calls(result):
    """{stage: calls} of all processes."""
    found = {}
    for path in result.dir.glob('*.timing.json'):
        for stage, said in json.loads(path.read_text())['stages'].items():
            found[stage] = found.get(stage, 0) + said['calls']
    return found


@pytest.mark.parametrize('mode', MODES)
@by_version
def test_modes(run, place, python, mode):
    """The shim runs once and silently; a function is a stage however its script is run."""
    options, stdin = MODES[mode]
    bare = run([python.path, *options], preload=False, stdin=stdin)
    watched = run([python.path, *options], {'TFI_LOG': 'debug'}, stdin=stdin)
    lines = [line for line in watched.err.splitlines() if not line.startswith('tfinject: ')]
    assert bare.rc == 0 and (watched.rc, watched.out, lines) == (bare.rc, bare.out, bare.err.splitlines())
    assert watched.err.count('tfinject: shim: ready\n') == 1 and not watched.dir.exists()
    result = run([python.path, *options], {'TFI_STAGES': '__main__:work'}, stdin=stdin)
    assert (result.rc, result.out, result.err) == (bare.rc, bare.out, bare.err)
    assert calls(result) == {'work': 1}


@pytest.mark.parametrize('python', pythons.UNSEEN or [pytest.param(None, id='none')], ids=lambda p: p and p.name)
def test_old_versions_are_left_alone(run, tmp_path, python):
    """Only Python 3.8 tells the library that it begins, and gets the warning."""
    if python is None:
        pytest.skip('no Python older than 3.9 is here')
    (tmp_path / 'old.py').write_text('import json\ndef work(): return 1\nprint(work(), json.dumps([1]))\n')
    env = {'TFI_STAGES': '__main__:work,json:dumps', 'TFI_LOG': 'debug'}
    result = run([python.path, 'old.py'], env)
    warning = ('tfinject: Python functions and modules are not recorded: this Python lacks PyInterpreterState_Get, '
               'which 3.9 to 3.14 have\n')
    assert (result.rc, result.out) == (0, '1 [1]\n' if python.version[0] > 2 else "(1, '[1]')\n")
    assert result.err == (warning if python.version >= (3, 8) else '')
    assert not result.dir.exists()


LOOK = r'''
import importlib, importlib.util, os, re, sys, warnings
def look():
    import asyncio, json.decoder, target
    import builtins
    for module in (asyncio, asyncio.events, target, target.sub, json):
        spec = module.__spec__
        print(type(spec), type(spec).__mro__, sorted(vars(spec)), spec._initializing, type(spec.loader), module.__loader__ is spec.loader)
    print([re.sub('0x.*', '', repr(f)) for f in sys.meta_path if getattr(f, '__module__', '') != '<tfinject>'], len(sys.path_hooks), threading_count())
    print(sorted(n for n in sys.modules if n not in ('_ast',)))
    print(sorted(dir(builtins)), sorted(os.environ) == sorted(e for e in os.environ))
def threading_count():
    names = []
    for task in os.listdir('/proc/self/task'):
        with open('/proc/self/task/%s/comm' % task) as file:
            names.append(file.read())
    return len([name for name in names if name != 'tfinject\n'])  # the library's own has that name
for attempt in range(2):
    try:
        import broken
    except ZeroDivisionError as error:
        tb = error.__traceback__
        while tb.tb_next: tb = tb.tb_next
        print('broken', tb.tb_frame.f_code.co_name, tb.tb_lineno, 'broken' in sys.modules)
    os.environ['MEND'] = '1'
print(type(importlib.util.find_spec('target')), type(importlib.util.find_spec('target').loader), 'target' in sys.modules)
warnings.simplefilter('always')
look()
import broken, deprecated
print(broken.f(2), importlib.reload(broken).f(3), importlib.import_module('target.sub').g(1))
try:
    import absent
except ImportError as error:
    print(error)
import raises
'''


@by_version
def test_imports_look_the_same(run, tmp_path, python):
    """Specs, loaders, finders, modules, warnings and tracebacks are the same as without us, for awaited modules too.

    Only our finder itself is visible until all awaited modules are imported."""
    for name, text in {
        'look.py': LOOK, 'target/__init__.py': 'from . import sub\n', 'target/sub.py': 'def g(x): return x\n',
        'broken.py': 'import os\n1 if "MEND" in os.environ else 1 / 0\ndef f(x): return x\n',
        'deprecated.py': 'import warnings\nwarnings.warn("old", DeprecationWarning, 2)\ndef f(): pass\n',
        'raises.py': 'def f(): raise KeyError(3)\nf()\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    stages = 'target.sub:g,broken:f,absent:f,json:dumps,deprecated:f,raises:f,raises:nothing'
    command = [python.path, '-B', 'look.py']
    bare, watched = run(command, preload=False), run(command, {'TFI_STAGES': stages})
    assert bare.rc == 1 and 'KeyError: 3' in bare.err and 'DeprecationWarning: old' in bare.err
    ours = re.findall(r'tfinject: TFI_STAGES: .*\n', watched.err)
    assert (watched.rc, watched.out, re.sub(r'tfinject: TFI_STAGES: .*\n', '', watched.err)) == (bare.rc, bare.out, bare.err)
    assert {re.search(r'[\w.]+:\w+(?= |$)', line.partition('TFI_STAGES: ')[2])[0] for line in ours} <= {'absent:f', 'json:dumps', 'raises:f', 'raises:nothing'}
    assert calls(watched) == {'g': 1, 'broken:f': 1}  # a reloaded module has new functions


PROCESSES = '''
import multiprocessing, sys
def work(n):
    return n * n
if __name__ == '__main__':
    context = multiprocessing.get_context(sys.argv[1])
    processes = [context.Process(target=work, args=(i,)) for i in range(3)]
    for p in processes: p.start()
    for p in processes: p.join()
    with context.Pool(2) as pool:
        print(pool.map(work, range(5)), [p.exitcode for p in processes])
        pool.close()
        pool.join()
    print(work(2))
'''


@pytest.mark.parametrize('method', ['fork', 'spawn', 'forkserver'])
@by_version
def test_multiprocessing(run, tmp_path, python, method):
    (tmp_path / 'processes.py').write_text(PROCESSES)
    result = run([python.path, '-W', 'ignore', 'processes.py', method], {'TFI_STAGES': '__main__:work'})
    assert (result.rc, result.out, result.err) == (0, '[0, 1, 4, 9, 16] [0, 0, 0]\n4\n', '')
    assert calls(result) == {'work': 9}


def test_torchrun(run, tmp_path, python, analyze):
    """The launcher stays asleep; each rank has its own trace."""
    (tmp_path / 'ranks.py').write_text('import os, torch, torch.distributed as dist\n'
                                       'dist.init_process_group("gloo")\n'
                                       'def work(x):\n    dist.all_reduce(x)\n    return x.sum().item()\n'
                                       'os.write(1, b"%d\\n" % work(torch.ones(2) * dist.get_rank()))\n'  # one write: the ranks share a pipe
                                       'dist.destroy_process_group()\n' + AT_REST)
    command = [python, '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node=2', 'ranks.py']
    result = run(command, {'TFI_STAGES': '__main__:work', 'OMP_NUM_THREADS': '1'})
    assert result.rc == 0 and result.out.split() == ['2', '2'] and 'tfinject' not in result.err, result.err
    assert calls(result)['work'] == 2
    assert sorted(row['rank'] for row in analyze('info', result.dir)['rows']) == [0, 1]


EMBEDDED = r'''
#include <Python.h>
int main(int argc, char **argv)
{
    Py_Initialize();
    if (argc > 1) PyRun_SimpleString("import sys; sys.path.insert(0, '.')");
    for (int i = 1; i < argc; i++) PyRun_SimpleString(argv[i]);
    return Py_FinalizeEx();
}
'''


def shared_pythons():
    """(interpreter, its settings) of each one here with a shared library that a program can link to."""
    for python in pythons.SEEN:
        script = 'import json, sysconfig; print(json.dumps(dict(sysconfig.get_config_vars(), include=sysconfig.get_path("include"))))'
        said = json.loads(subprocess.run([python.path, '-c', script], capture_output=True, text=True, check=True).stdout)
        if said.get('Py_ENABLE_SHARED') and (Path(said['LIBDIR']) / said['LDLIBRARY']).exists():
            yield python, said


def test_embedded(run, tmp_path, analyze):
    """A program with an embedded interpreter, which has no name of a script: the first code that it runs starts the shim."""
    found = next(shared_pythons(), None)
    if not found:
        pytest.skip('no Python with a shared library is installed')
    python, said = found
    (tmp_path / 'work.py').write_text('def work(x):\n    return x + 1\n')
    (tmp_path / 'embedded.c').write_text(EMBEDDED)
    execute(['gcc', '-o', tmp_path / 'embedded', tmp_path / 'embedded.c', f'-I{said["include"]}', f'-L{said["LIBDIR"]}',
             f'-Wl,-rpath,{said["LIBDIR"]}', '-l' + re.sub(r'^lib|\.so$', '', said['LDLIBRARY'])], clean_environment())
    lines = ['import work; print(work.work(1))', 'def local(x): return x', 'print(work.work(2), local(3))']
    env = {'TFI_STAGES': 'work:work,__main__:local', 'PYTHONHOME': said['prefix'], 'PYTHONDONTWRITEBYTECODE': '1', 'TFI_LOG': 'error'}
    bare = run([tmp_path / 'embedded', *lines], env, preload=False)
    watched = run([tmp_path / 'embedded', *lines], env)
    assert (watched.rc, watched.out, watched.err) == (0, '2\n3 3\n', '') == (bare.rc, bare.out, bare.err)
    assert calls(watched) == {'work': 2, 'local': 1}


def test_parts_are_compiled_when_they_are_needed(run, python):
    """An interpreter that imports no awaited module pays only for the waiting."""
    env = {'TFI_STAGES': 'json:dumps', 'TFI_LOG': 'debug'}
    command = [python, '-I', '-S', '-c']
    idle, used = (run([*command, script], env).err for script in ('pass', 'import json, asyncio; json.dumps(1)'))
    assert 'shim: ready' in idle and 'shim: functions' not in idle and 'shim: asyncio' not in idle
    assert used.index('shim: ready') < used.index('shim: functions') < used.index('shim: asyncio')


# ---- bad weather ----

STEPS = ['shim: begin', 'shim: asyncio', 'shim: functions', 'shim: ready']


@pytest.mark.parametrize('step', STEPS)
@by_version
def test_a_shim_that_fails(run, python, step):
    """A broken shim gives one warning; output, exit code and the other parts' records are unchanged."""
    env = {'TFI_STAGES': 'parts:waits,parts:used,__main__:local', 'PYTHONDONTWRITEBYTECODE': '1'}
    command = [python.path, SCRIPTS / 'main.py', 'asynchronous']
    bare = run(command, preload=False)
    result = run(command, {**env, 'SHIM_FAILS_AT': step}, preload='test')
    assert (result.rc, result.out) == (bare.rc, bare.out) and bare.rc == 0
    line, = result.err.splitlines()
    assert line.startswith('tfinject: ') and line.endswith('is off: RuntimeError: broken by a test'), line
    seen = {'shim: begin': {}, 'shim: functions': {}}.get(step, {'waits': 9, 'used': 1})
    assert calls(result) == seen


def test_other_parts_go_on(run, python, analyze):
    """C marks are recorded in a process whose shim has failed."""
    script = 'import ctypes; c = ctypes.CDLL(None); c.tfi_range_push(b"mine"); c.tfi_range_pop()'
    result = run([python, '-c', script], {'SHIM_FAILS_AT': 'shim: begin'}, preload='test')
    assert result.rc == 0 and len(result.err.splitlines()) == 1
    assert [row['stage'] for row in analyze('stages', result.dir)['rows'] if row['stage'] != '(start-up)'] == ['mine']


@by_version
def test_nothing_is_called_at_the_end(run, tmp_path, python):
    """Daemon threads in stages, and unfinished generators and tasks, survive the end of the interpreter."""
    (tmp_path / 'end.py').write_text('''
import asyncio, atexit, threading, time, work
threading.Thread(target=work.work, args=(600,), daemon=True).start()
done = []
def spin():
    while True: work.work(0), done.append(1)
for _ in range(3): threading.Thread(target=spin, daemon=True).start()
g = work.numbers(); next(g)
class Late:
    def __del__(self): print("late", work.work(0))
late = Late()
atexit.register(lambda: print("atexit", work.work(0)))
while len(done) < 30: time.sleep(0.01)
print("done")
''')
    (tmp_path / 'work.py').write_text('import time\ndef work(n): time.sleep(n)\ndef numbers():\n    yield 1\n    yield 2\n')
    command, env = [python.path, '-B', 'end.py'], {'TFI_STAGES': 'work:work,work:numbers'}
    bare, watched = run(command, preload=False), run(command, env)
    assert (watched.rc, watched.out, watched.err) == (bare.rc, bare.out, bare.err) and bare.rc == 0
    assert calls(watched)['work'] >= 30


# ---- torch.compile ----

COMPILE = """
import torch, bare, work
from torch._dynamo.utils import counters
x = torch.arange(8.0)
def local(x):
    return work.inner(x) - 1
def other(x):
    return bare.inner(x) - 1
for module, function in (bare, other), (work, local):
    compiled, around = torch.compile(module.inner, fullgraph=True, backend="eager"), torch.compile(module.around, backend="eager")
    outputs = compiled(x), module.outer(compiled, x), around(x), around(x), module.inner(x), torch.compile(function, fullgraph=True, backend="eager")(x)
    print([y.tolist() for y in outputs], {k: dict(v) for k, v in counters.items() if k in ("graph_break", "stats", "unimplemented")})
    counters.clear(), torch._dynamo.reset()
"""


def test_compile_has_the_same_graphs(run, tmp_path, python):
    """Functions that are stages have the results, graphs and graph breaks of functions that are none, with fullgraph=True
    inside and outside a stage."""
    (tmp_path / 'compiled.py').write_text(COMPILE)
    for name in 'bare', 'work':
        (tmp_path / f'{name}.py').write_text('def inner(x):\n    return (x * 2).relu() + 1\n'
                                             'def outer(f, x):\n    return f(x)\n'
                                             'def around(x):\n    y = inner(x)\n    print(end="")\n    return y * 3\n')
    watched = run([python, '-B', 'compiled.py'], {'TFI_STAGES': 'work:inner,work:outer,work:around,__main__:local'})
    assert (watched.rc, watched.err) == (0, '')
    bare, work = watched.out.splitlines()
    assert work == bare and 'unique_graphs' in bare and 'graph_break' in bare
    found = calls(watched)
    assert (found['inner'], found['outer']) == (1, 1), found
