"""test_callstack - stacks of Python and native frames, for every CPython on this machine, compared with traceback's.

The scripts use only ctypes, so any interpreter can run them; those with torch need build/venv. A script prints
traceback's frames on the very line where the library takes its stack.
"""

import json
import re
import sys

import pytest

import pythons
import tfr
from conftest import BUILD, short_form

ON = {'TFI_WITH_STACK': '1', 'TFI_ACTIVITIES': 'cpu,mem'}

HEAD = '''
import ctypes, json, sys, threading, traceback
t = ctypes.CDLL(None)
held = ctypes.PyDLL(None)  # calls that keep the interpreter's lock
def said():
    print(json.dumps([[f.name, f.filename, f.lineno] for f in reversed(traceback.extract_stack()[:-1])]))
def push(name):
    said(), t.tfi_range_push(name.encode()), t.tfi_range_pop()
'''

# Functions, a method, a generator, a comprehension, a lambda, recursion, names that are not ASCII, calls over several
# lines, and a function whose line table begins with a long jump.
SCRIPT = HEAD + '''
def gen():
    yield [push(n)
           for n in ('comprehension',)]
def größe_字(x):
    if x:
        return größe_字(
            x - 1
        )
    list(map(lambda n: list(gen()), (
        1,)))
class Context:
    def __enter__(self):
        größe_字(2)
        return self
    def __exit__(self, *_):
        push('exit')
def far(
    a=1,


''' + '\n' * 200 + '''
):
    try:
        raise ValueError
    except ValueError:
        with Context() as c:
            if a: push('far')
            for _ in range(2): push('twice')
far()
exec(compile('push("compiled")', 'a file\\tof none', 'exec'))
thread = threading.Thread(target=lambda: push('thread'))
thread.start()
thread.join()
'''


def frames(text):
    return [tuple(line.split('\t')) for line in text.split('\n')] if text else []


@pytest.fixture
def records(analyze):
    def records(directory, *kinds):
        rows = sorted(analyze('dump', directory)['rows'], key=lambda r: r['time_us'] or 0)
        return [dict(r['values'], pid=r['pid'], kind=r['kind']) for r in rows if r['kind'] in kinds]
    return records


@pytest.fixture
def stacks(records):
    """stacks(directory) -> the frames of each range, in the order in which the ranges were opened."""
    return lambda directory: [frames(r['stack']) for r in records(directory, 'range_begin')]


@pytest.fixture
def script(run, tmp_path, victim):
    """script(text, python, ...) runs the text as a file; result.said has traceback's frames."""
    def script(text, python=sys.executable, env=None, arguments=(), **options):
        path = tmp_path / 'script.py'
        path.write_text(f'FRAMES = {str(victim("libframes.so"))!r}\nCUDA = {str(BUILD / "simgpu/libcuda.so.1")!r}\n' + text)
        result = run([python, path, *arguments], env={**ON, 'PYTHONIOENCODING': 'utf-8', **(env or {})}, **options)
        assert result.rc == 0, result.err
        result.said = [[(name, file.replace('\t', ' '), str(line)) for name, file, line in json.loads(text)]
                       for text in result.out.splitlines()]
        return result
    return script


def of_python(stack, said):
    """The frames of a stack whose files traceback names."""
    files = {file for _, file, _ in said}
    return [f for f in stack if f[1] in files]


def of_script(stack):
    return [f for f in stack if f[1].endswith('script.py')]


# ---- Python ----

@pythons.by_version()
def test_python_frames(script, stacks, python):
    """Names, files and lines equal traceback's for every kind of frame, with none missing."""
    result = script(SCRIPT, python.path)
    taken = stacks(result.dir)
    assert len(result.said) == 7 and len(taken) == 7 and result.err == ''
    for stack, said in zip(taken, result.said):
        assert of_python(stack, said) == said
        assert 'libtfinject' not in str(stack)
    assert [f[0] for f in taken[0] if f in result.said[0]][-6:] == 3 * ['größe_字'] + ['__enter__', 'far', '<module>']


@pythons.by_version()
def test_joined(script, stacks, python):
    """Native frames stand between the Python frames that called them."""
    result = script(HEAD + '''
frames = ctypes.CDLL(FRAMES)
callback = ctypes.CFUNCTYPE(ctypes.c_int)
@callback
def inner():
    push('inner')
    return 0
@callback
def outer():
    return frames.frames_middle(inner)
def start():
    assert frames.frames_outer(outer) == 122
start()
''', python.path)
    stack, = stacks(result.dir)
    names = [f[0] for f in stack]
    wanted = ['push', 'inner', 'frames_inner', 'frames_middle', 'outer', 'frames_inner', 'frames_middle', 'frames_outer',
              'start', '<module>']
    rest = iter(names)
    assert all(name in rest for name in wanted), names
    assert [n for n in names if n in wanted] == wanted
    assert not [f for f in stack if '_PyEval' in f[0] or 'libpython' in f[1]], "the stack has the interpreter's own native frames"
    assert {f[1] for f in stack if f[0].startswith('frames_')} == {str(BUILD / 'victims/libframes.so')}


def test_deep(script, stacks):
    """A stack that is too deep keeps its innermost frames."""
    result = script(HEAD + '''
sys.setrecursionlimit(5000)
def f(n):
    return f(n - 1) if n else push('deep')
threading.stack_size(1 << 28)
thread = threading.Thread(target=lambda: f(3000))
thread.start()
thread.join()
''')
    (stack,), (said,) = stacks(result.dir), result.said
    assert of_python(stack, said) == said[:128]


MANY = HEAD + """
def f(path, depth):
    if depth == 0:
        t.tfi_range_push(b'many'), t.tfi_range_pop()
    elif path & 1:
        f(path >> 1, depth - 1)
    else:
        f(path >> 1, depth - 1)
for path in range(int(sys.argv[1])):
    f(path, 60)
"""


@pytest.mark.slow
@short_form(1, 'count', [15000, 60000])
def test_many_different_stacks(script, count):
    """Each frame is stored once, so the string table has room for tens of thousands of stacks."""
    result = script(MANY, arguments=[str(count)])
    assert result.err == ''
    trace = tfr.read(next(result.dir.glob('*.tfr')))
    stacks = [r.values['stack'] for r in trace.records if r.kind == 'range_begin']
    assert len(set(stacks)) == len(stacks) == count and tfr.STRING_LOST not in stacks
    assert not [key for key in trace.footer if key.startswith('drop.')]
    lines = MANY.splitlines()
    ends, odd, even = (i + 3 for i, line in enumerate(lines) if 'many' in line or 'f(path >>' in line)  # two lines precede
    for path in (0, 1, 12345, count - 1):
        taken = [int(line) for name, _, line in tfr.stack_of(trace.strings, stacks[path]) if name == 'f']
        assert taken == [ends] + [odd if path >> i & 1 else even for i in reversed(range(60))]


def test_off_by_default(script, stacks):
    result = script(HEAD + "push('x')\n", env={'TFI_WITH_STACK': None})
    assert stacks(result.dir) == [[]]


def test_telefusers_switch(script, stacks):
    result = script(HEAD + "push('x')\n", env={'TFI_WITH_STACK': None, 'TELEFUSER_TORCH_PROFILER_WITH_STACK': 'on'})
    assert of_python(stacks(result.dir)[0], result.said[0]) == result.said[0]


def test_unknown_version(script, stacks, victim, lib):
    """Frames of unknown layout come from the interpreter's own functions, and only while its lock is held."""
    python = next((p.path for p in pythons.SEEN if p.shared), None)
    if not python:
        pytest.skip('no Python with a shared library is installed')
    result = script(HEAD + '''
def größe():
    said(), held.tfi_range_push(b'held'), held.tfi_range_pop()
    try:
        raise KeyError('set aside')
    except KeyError:
        push('given up')
größe()
''', python, preload=f'{victim("libversion.so")}:{lib}')
    held, given_up = stacks(result.dir)
    assert of_python(held, result.said[0]) == result.said[0]
    assert of_python(given_up, result.said[1]) == [] and given_up


# ---- native ----

@pytest.mark.parametrize('case', ['main', 'thread'])
def test_native_frames(run, victim, stacks, case):
    result = run([victim('frames'), case], env=ON)
    assert (result.rc, result.err) == (0, '')
    (stack,) = stacks(result.dir)
    assert [f[0] for f in stack[1:4]] == ['frames_inner', 'frames_middle', 'frames_outer']
    assert [f[1] for f in stack[:5]] == [str(victim('frames'))] + [str(victim('libframes.so'))] * 3 + [str(victim('frames'))]
    assert re.fullmatch('0x[0-9a-f]+', stack[0][0]) and {f[2] for f in stack} == {'0'}


def test_fork(run, victim, stacks):
    """A forked child takes its own stacks."""
    result = run([victim('frames'), 'fork'], env=ON)
    assert (result.rc, result.err) == (0, '')
    parent, child = stacks(result.dir)
    assert [f[0] for f in parent[1:4]] == [f[0] for f in child[1:4]] == ['frames_inner', 'frames_middle', 'frames_outer']


def test_fork_of_python(script, stacks):
    """A child that repeats its parent's calls has its own frame numbers."""
    result = script(HEAD + """
import os
def other(name):
    t.tfi_range_push(name), t.tfi_range_pop()
def twice():
    for who in ('parent', 'child'):
        if who == 'child':
            sys.stdout.flush()
            if os.fork(): return os.wait()
            for i in range(7): other(b'%d' % i)
        push('the same')
twice()
""")
    taken = stacks(result.dir)
    assert len(taken) == 9 and len(result.said) == 2 and result.said[0] == result.said[1]
    assert [of_python(taken[i], result.said[0]) for i in (0, 8)] == result.said
    assert taken[0] == taken[8] and all(stack[0][0] == 'other' for stack in map(of_script, taken[1:8]))


def test_without_libunwind(script, stacks, tmp_path):
    """Without libunwind there is one warning, and Python frames are still taken."""
    (tmp_path / 'libunwind.so.8').write_text('')
    result = script(HEAD + "push('x')\n", env={'LD_LIBRARY_PATH': tmp_path})
    assert re.fullmatch(r'tfinject: [^\n]*libunwind[^\n]*\n', result.err)
    assert stacks(result.dir) == result.said


@pytest.mark.parametrize('calls', [False, True], ids=['stacks', 'calls'])
def test_the_unwinder_keeps_off_the_programs_files(script, stacks, analyze, lib, calls):
    """A program closes descriptors that are not its own and opens files. Stacks through code without unwind tables, where
    libunwind asks whether addresses can be read, touch none of them. Calls of libunwind's are no losses."""
    result = script(HEAD + """
import mmap, os
code = mmap.mmap(-1, 4096, prot=7)
code.write(b'\\x55\\x48\\x89\\xe5\\xff\\xd6\\x5d\\xc3')  # keeps a frame pointer, calls its second argument
through = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
def taken(name):
    through(name, ctypes.cast(t.tfi_range_push, ctypes.c_void_p)), t.tfi_range_pop()
taken(b'first')
os.closerange(3, 64)
files = [os.open('file%d' % i, os.O_RDWR | os.O_CREAT) for i in range(20)]
for f in files: os.write(f, b'text'), os.lseek(f, 0, os.SEEK_SET)
for n in range(20):  # each has a stack of its own, which libunwind has not asked about
    threads = [threading.Thread(target=taken, args=(b'other',)) for _ in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
for i, f in enumerate(files):
    assert os.fstat(f).st_ino == os.stat('file%d' % i).st_ino and os.lseek(f, 0, os.SEEK_CUR) == 0, f
    assert open('file%d' % i).read() == 'text', f
""", env={'TFI_ACTIVITIES': 'cpu,mem,io', 'TFI_HOST_ALLOC_KB': '1'} if calls else {},
                    preload=f'{lib.with_name("libtfinject-alloc.so")} {lib}' if calls else True)
    assert (result.rc, result.err) == (0, '')
    assert len(stacks(result.dir)) == 41
    assert [r['lost'] for r in analyze('info', result.dir)['rows']] == [{}]


# ---- the records with stacks ----

CALLS = HEAD + '''
cuda = ctypes.CDLL(CUDA)
context, module, function, block = (ctypes.c_void_p() for _ in range(4))
ptx = b'.version 8.0\\n.target sm_75\\n.address_size 64\\n.visible .entry k(.param .u64 out) { ret; }\\n'
def ok(result): assert result == 0, result
ok(cuda.cuInit(0))
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(cuda.cuCtxSetCurrent(context))
ok(cuda.cuModuleLoadData(ctypes.byref(module), ptx))
ok(cuda.cuModuleGetFunction(ctypes.byref(function), module, b'k'))
said(), ok(cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(4096)))
params = (ctypes.c_void_p * 1)(ctypes.addressof(block))
def launch(): said(), ok(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, params, None))
for _ in range(2): launch()
for _ in range(2): launch()
ok(cuda.cuCtxSynchronize())
ok(cuda.cuMemFree_v2(block))
'''


def test_calls(script, records):
    """Launches and allocations have a stack, other calls have none; the same call from two places has two stacks."""
    result = script(CALLS, env={'LD_LIBRARY_PATH': BUILD / 'simgpu'})
    rows = records(result.dir, 'call')
    with_stack = [(r['func'], frames(r['stack'])) for r in rows if r['stack']]
    assert [f for f, _ in with_stack] == ['cuMemAlloc_v2'] + 4 * ['cuLaunchKernel'], [r['func'] for r in rows]
    for (_, stack), said in zip(with_stack, result.said):
        assert of_python(stack, said) == said
    assert {'cuCtxSynchronize', 'cuMemFree_v2'} <= {r['func'] for r in rows}


def test_not_while_recording_is_off(script, records):
    """Stages are recorded without a stack while recording is off."""
    result = script(CALLS + "push('s')\n", env={'LD_LIBRARY_PATH': BUILD / 'simgpu', 'TFI_CAPTURE': 'delay=3600'})
    assert [r['stack'] for r in records(result.dir, 'range_begin', 'call')] == [None]


def test_allocations_and_operators_of_torch(script, records, python):
    """Allocations and operators deep in Python, without the interpreter's lock, have the frames that traceback sees."""
    result = script(HEAD + '''
import torch
class Deep(torch.nn.Module):
    def forward(self, x):
        return helper(x)
def helper(x):
    return said(), torch.empty(12345, dtype=torch.int8)
deep = Deep()
t.tfi_range_push(b's')
kept = deep(torch.zeros(3))
del kept
t.tfi_range_pop()
''', python, env={'TFI_ACTIVITIES': 'mem,ops'})
    row, = (r for r in records(result.dir, 'memory') if r['bytes'] == 12345)
    stack, (said,) = frames(row['stack']), result.said
    assert of_python(stack, said) == said and said[0][0] == 'helper' and len(said) >= 4
    assert any('empty' in f[0] for f in stack) and any(f[1].endswith('libtorch_cpu.so') for f in stack)
    operator, = (r for r in records(result.dir, 'op') if r['name'] == 'aten::empty' and '12345' in str(r['concrete'] or '12345'))
    assert of_python(frames(operator['stack']), said) == said
    freed, = (r for r in records(result.dir, 'memory') if r['bytes'] == -12345)
    assert frames(freed['stack'])[-1:] != [] and freed['stack'] != row['stack']
