"""test_stacks_shown - order, names and folding of the stack frames that the analyser shows of .tfr traces.

One program runs under torch.profiler and under the library, and both must show the same frames. tests/tfr.py writes the
other traces frame by frame.
"""

import json

import pytest

from optrace import OpTrace
from test_device_export import events
from test_device_records import US

# Each function stands on one line: torch shows the line where a function begins, we show the current line.
PROGRAM = '''
import json, sys, torch; torch._lazy_modules.discard('_inductor')
w, x = torch.randn(8, 8, requires_grad=True), torch.randn(4, 8)
def multiply(x): return torch.matmul(torch.nn.functional.linear(x, w), w)
def middle(x): return multiply(x).relu() + x
def outer(x): return middle(x).sum()
def start(): outer(x); list(map(outer, [x]))
def top(): start()
if len(sys.argv) > 1:
    with torch.profiler.profile(with_stack=True, experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True)) as p:
        top()
    print(json.dumps([[e.name, e.stack] for e in p.events() if e.name.startswith('aten::') and e.stack]))
else:
    top()
'''
PLUMBING = ('_Z', 'RecordFunction', '_ops::', 'Dispatcher', '0x', '_PyEval', 'libffi', 'libtfinject', '_start')


def test_stacks_are_torchs(run, analyze, python, forked, tmp_path):
    """Operators have the same first Python frames as under torch.profiler, and no frame of libtorch's internals."""
    script = tmp_path / 'script.py'
    script.write_text(PROGRAM)
    said = forked(['python', script, 'profile'])
    assert said.rc == 0, said.err
    wanted = {(name, tuple([f for f in stack if not f.startswith('<built-in')][:3])) for name, stack in json.loads(said.out)}
    result = run([python, script], env={'TFI_WITH_STACK': '1'})
    assert (result.rc, result.err) == (0, '')
    rows = analyze('ops', '--group-by', 'name,stack=3', '--row-limit', '-1', result.dir)['rows']
    taken = {(r['name'], tuple(f.removeprefix(f'{tmp_path}/') for f in r['stack'])) for r in rows if r['name'].startswith('aten::')}
    within = {row for row in taken if any(': start' in f or ': outer' in f for f in row[1])}
    assert within == {row for row in wanted if any(': start' in f or ': outer' in f for f in row[1])}
    assert {'aten::linear', 'aten::matmul', 'aten::mm', 'aten::relu', 'aten::sum', 'aten::add'} <= {name for name, _ in within}

    shown = [f for r in analyze('ops', '--group-by', 'name,stack=300', '--row-limit', '-1', result.dir)['rows'] for f in r['stack']]
    exported = analyze('export', 'chrome', result.dir, format=None).out
    for frame in shown + [f for e in events(json.loads(exported), 'cpu_op') for f in e['args'].get('Call stack', '').split(';')]:
        assert not [word for word in PLUMBING if word in frame], frame
    assert 'libtorch_cpu.so: at::native::matmul' in shown
    raw = [r['values']['stack'] for r in analyze('dump', result.dir)['rows'] if r['kind'] == 'op']
    assert any('\n_ZN2at14RecordFunction' in f'\n{stack}' for stack in raw), 'dump must show the raw frames'


TORCH, MINE, LIBC = '/v/torch/lib/libtorch_cpu.so', '/v/libmine.so', '/lib/libc.so.6'
CALLBACKS = ('_ZN2at14RecordFunction17runStartCallbacksEv', TORCH, 0)
STACKS = {
    'python first': (
        [CALLBACKS, ('_ZN2at4_ops2mm4callERKNS_6TensorES4_', TORCH, 0), ('0x1ed72a5', TORCH, 0),
         ('_ZN2at6native6matmulERKNS_6TensorES3_', TORCH, 0), ('forward', 'm.py', 3), ('ffi_call', '/lib/libffi.so.8', 0),
         ('0x12', '/p/_ctypes.cpython-311.so', 0), ('0x2f', MINE, 0), ('_ZN4mine3addIiEEvT_', MINE, 0), ('<module>', 'm.py', 0),
         ('PyObject_Vectorcall', '/p/program', 0), ('_PyEval_EvalFrameDefault', '/p/program', 0), ('0x27249', LIBC, 0),
         ('__libc_start_main', LIBC, 0), ('_start', '/p/program', 0)],
        ['m.py(3): forward', 'm.py(0): <module>', 'libtorch_cpu.so: at::native::matmul', 'libmine.so+0x2f', 'libmine.so: mine::add']),
    'native': (
        [('0x7f001234', '', 0), ('0x2f', MINE, 0), ('_ZN4mine3addIiEEvT_', MINE, 0), ('main', '/p/program', 0),
         ('0x27249', LIBC, 0), ('__libc_start_main', LIBC, 0), ('_start', '/p/program', 0)],
        ['0x7f001234', 'libmine.so+0x2f', 'libmine.so: mine::add', 'program: main', 'libc.so.6+0x27249',
         'libc.so.6: __libc_start_main', 'program: _start']),
    'native with torch': ([CALLBACKS, ('main', '/p/program', 0)], ['program: main']),
    'folded alone': ([CALLBACKS, ('0x5', TORCH, 0)], ['libtorch_cpu.so: at::RecordFunction::runStartCallbacks', 'libtorch_cpu.so+0x5']),
    'no name of C++': ([('_Zzz', MINE, 0), ('f', '<string>', 0)], ['<string>(0): f', 'libmine.so: _Zzz']),
}


@pytest.mark.parametrize('case', STACKS)
def test_order_names_and_folding(tmp_path, analyze, case):
    """Python frames come first and native frames, demangled, after them; a stack without Python keeps its order."""
    frames, wanted = STACKS[case]
    t = OpTrace()
    for i in range(2):
        t.op('aten::add', (100 + i) * US, (101 + i) * US, frames=frames)
    path = t.save(tmp_path / 'rank2.h.1.tfr')
    assert [r['stack'] for r in analyze('ops', '--group-by', 'name,stack=300', path)['rows']] == [wanted]
    exported = json.loads(analyze('export', 'chrome', path, format=None).out)
    assert [e['args']['Call stack'] for e in events(exported, 'cpu_op')] == [';'.join(wanted)] * 2
    raw = {r['values']['stack'] for r in analyze('dump', path)['rows'] if r['kind'] == 'op'}
    assert raw == {'\n'.join('\t'.join(map(str, frame)) for frame in frames)}
