"""test_torchscript - the modules of TorchScript around operators, against torch.profiler(with_modules=True) in one process.

tests/tfr.py reads our trace. A program with its own operator new and operator delete is victims/libown_new.c.

torch keeps a hierarchy for each function but backward ones, and gives them out to all functions of a thread in their
order: behind a backward function torch's belong to later functions. `kept` is what torch has kept.
"""

import json
from collections import Counter, defaultdict
from types import SimpleNamespace

import pytest

import tfr
from conftest import ROOT, clean_environment, execute, short_form

pytestmark = pytest.mark.torch

OWN_NEW = ROOT / 'build' / 'victims' / 'libown_new.so'
BACKWARD, TORCH = 1, 0x400
KEY = 'Module Hierarchy'

MODEL = '''
import json, sys, threading, warnings
warnings.simplefilter('ignore')
import torch; torch._lazy_modules.discard('_inductor')
from torch.profiler import profile, record_function, ProfilerActivity
torch.set_num_threads(1)

@torch.jit.script
def free(x):
    return torch.tanh(x) + 1

class Part(torch.nn.Module):
    def forward(self, x, n: int):
        y = torch.relu(x)
        for i in range(n):
            y = y + torch.sigmoid(x)
        if bool(y.sum() > 0):
            y = free(y) * 2
        with torch.autograd.profiler.record_function('in the script'):
            y = torch.neg(y)
        return y

class Smooth(torch.nn.Module):
    """libtorch differentiates this one as a whole."""
    def forward(self, x):
        y = torch.relu(x)
        for i in range(2):
            y = y + torch.sigmoid(x) * y
        return y.sum()

class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.line = Part(), Part(), torch.nn.Linear(4, 4)
        self.many = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])
    def helper(self, x):
        return self.line(x)
    @torch.jit.ignore
    def outside(self, x):
        return x.abs()
    def forward(self, x):
        for layer in self.many:
            x = layer(x)
        return self.second(self.outside(self.first(self.helper(x), 2)), 1).sum()

whole, smooth = torch.jit.script(Whole()), torch.jit.script(Smooth())
weight = torch.randn(2, 4, requires_grad=True)
traced = torch.jit.trace(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.ReLU())), torch.randn(2, 4))

def forward():
    with torch.no_grad():
        for _ in range(3):
            with record_function('outside a script'):
                whole(torch.randn(2, 4)), traced(torch.randn(2, 4)), torch.ones(3) + 1

def both():
    for _ in range(3):
        (whole(torch.randn(2, 4)) + traced(torch.randn(2, 4)).sum() + smooth(weight)).backward()

def threads():
    made = [threading.Thread(target=target) for target in (forward, forward, both)]
    [t.start() for t in made], [t.join() for t in made]
'''
PROFILED = MODEL + '''
forward(), both()
all_threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
with profile(activities=[ProfilerActivity.CPU], with_modules=True, experimental_config=all_threads) as p:
    with record_function('measured'):
        forward(), threads()
p.export_chrome_trace('kineto.json')
'''


@pytest.fixture(scope='module')
def profiled(lib, python, tmp_path_factory):
    """A directory with torch's kineto.json and our run/*.tfr of one process."""
    place = tmp_path_factory.mktemp('torchscript')
    (place / 'model.py').write_text(PROFILED)
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_WITH_MODULES': '1', 'TFI_TENSOR_ADDRESSES': '1',
           'TFI_OUTPUT_DIR': str(place / 'run')}
    result = execute([python, 'model.py'], env, place)
    assert result.rc == 0 and 'tfinject: ' not in result.err, result.err[-2000:]
    return place


def read(directory):
    path, = directory.glob('*.tfr')
    return tfr.read(path)


def functions(trace):
    """Operators and torch's ranges by kernel thread id, in the order they began."""
    def text(number):
        return trace.strings[number].decode() if number else None
    tids = {r.values['serial']: r.values['tid'] for r in trace.records if r.kind == 'thread'}
    found = defaultdict(list)
    for r in trace.records:
        v = r.values
        if r.kind == 'op' or (r.kind == 'range_begin' and v['flags'] & TORCH):
            last = v['time'] + v['duration'] if r.kind == 'op' else 0
            found[tids[r.thread]].append(SimpleNamespace(
                name=text(v['name']), time=v['time'], last=last, modules=text(v['modules']),
                is_backward=r.kind == 'op' and v['scope'] == BACKWARD))
    for rows in found.values():
        rows.sort(key=lambda f: (f.time, -f.last))
    return found


def of_torch(path):
    """(name, hierarchy) by thread, in the order they began. Our exports write a range across others as a pair."""
    found = defaultdict(list)
    for e in json.loads(path.read_text())['traceEvents']:
        if e.get('ph') in ('X', 'b') and e['cat'] in ('cpu_op', 'user_annotation'):
            found[e['tid']].append((e['ts'], -e.get('dur', 0), e['name'], e['args'].get(KEY)))
    return {tid: [e[2:] for e in sorted(events, key=lambda e: e[:2])] for tid, events in found.items()}


def test_hierarchies_are_torchs(profiled):
    ours, theirs = functions(read(profiled / 'run')), of_torch(profiled / 'kineto.json')
    compared = Counter()
    assert len(theirs) == 4
    for tid, events in theirs.items():
        names = [f.name for f in ours[tid]]
        first = names.index('measured') - [e[0] for e in events].index('measured') if 'measured' in names else 0
        rows = ours[tid][first:first + len(events)]
        assert [f.name for f in rows] == [name for name, _ in events]
        kept = [f.modules for f in rows if not f.is_backward]
        assert [modules for _, modules in events] == kept + [None] * (len(rows) - len(kept))
        assert all(f.modules is None for f in rows if f.is_backward)
        compared[any(f.is_backward for f in rows)] += len(rows)
    assert compared[False] > 500 and compared[True] > 300
    texts = {f.modules for rows in ours.values() for f in rows}
    assert {'TOP(Whole)::forward.', 'TOP(Whole)::forward.second(Part)::forward.', 'TOP()::<backward op>.',
            'TOP(Sequential)::forward.1(Sequential)::forward.0(ReLU)::forward.', None} <= texts
    assert any('::free.' in t for t in texts if t)
    marks = [f.modules for rows in ours.values() for f in rows if f.name == 'in the script']
    assert len(marks) > 30 and None not in marks


def test_exports_write_them(profiled, tfanalyze):
    trace = read(profiled / 'run')
    expected = Counter((f.name, f.modules) for rows in functions(trace).values() for f in rows)
    result = execute([tfanalyze, 'export', 'chrome', profiled / 'run', '--output', profiled / 'ours.json'], clean_environment(), profiled)
    assert result.rc == 0, result.err
    found = Counter((name, modules) for events in of_torch(profiled / 'ours.json').values() for name, modules in events)
    assert found == expected and sum(n for (_, m), n in found.items() if m) > 500
    result = execute([tfanalyze, 'export', 'et', profiled / 'run', '--output', profiled / 'et.json'], clean_environment(), profiled)
    assert result.rc == 0, result.err
    nodes = [(n['name'], {a['name']: a['value'] for a in n['attrs']}) for n in json.loads((profiled / 'et.json').read_text())['nodes']]
    assert Counter((name, attrs.get('module_hierarchy')) for name, attrs in nodes if attrs['rf_id']) == expected


def test_the_perfetto_trace_has_them(profiled, tfanalyze):
    import pftrace
    expected = Counter((f.name, f.modules) for rows in functions(read(profiled / 'run')).values() for f in rows)
    result = execute([tfanalyze, 'export', 'pftrace', profiled / 'run', '--output', profiled / 'out.pftrace'], clean_environment(), profiled)
    assert result.rc == 0, result.err
    slices = pftrace.read(profiled / 'out.pftrace').slices
    assert Counter((s.name, s.args.get(KEY)) for s in slices if s.category in ('cpu_op', 'user_annotation')) == expected


def test_et_replay_reads_the_attribute(profiled, forked, tfanalyze):
    code = '''
import importlib.util, json, os, sys
sys.path.insert(0, os.path.dirname(importlib.util.find_spec('param_bench').origin or next(iter(importlib.util.find_spec('param_bench').submodule_search_locations)) + '/x'))
from et_replay.execution_trace import ExecutionTrace
print(len(ExecutionTrace(json.load(open('et.json'))).nodes))
'''
    assert execute([tfanalyze, 'export', 'et', profiled / 'run', '--output', profiled / 'et.json'], clean_environment(), profiled).rc == 0
    result = forked(['python', '-W', 'ignore', '-c', code], cwd=profiled)
    assert result.rc == 0 and int(result.out) == len(json.loads((profiled / 'et.json').read_text())['nodes']), result.err[-2000:]


@short_form(1, 'release', ['missing', 'other'])
def test_other_releases(testlib, python, tmp_path, release):
    """libtorch lacks the function, or it returns another object: operators are recorded without modules."""
    (tmp_path / 'model.py').write_text(MODEL + 'forward(), both()')
    env = {**clean_environment(), 'LD_PRELOAD': str(testlib), 'TFI_WITH_MODULES': '1', 'TORCH_HIERARCHY': release, 'TFI_OUTPUT_DIR': str(tmp_path / 'run')}
    result = execute([python, 'model.py'], env, tmp_path)
    assert result.rc == 0, result.err[-2000:]
    rows, = functions(read(tmp_path / 'run')).values()
    assert len(rows) > 300 and {f.modules for f in rows} == {None}


FROZEN = '''
import gc
torch.jit.save(torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()), 'model.pt')
loaded = torch.jit.load('model.pt').eval()
frozen = torch.jit.optimize_for_inference(torch.jit.freeze(loaded))
del loaded
gc.collect()
junk = [bytes(200) for _ in range(20000)]
for _ in range(20):
    frozen(torch.randn(2, 4))
forward(), both()
'''


@short_form(1, 'asked', ['1', '0'])
def test_functions_that_torch_frees(lib, python, tmp_path, asked):
    """libtorch's function reads functions of such a model that torch has freed: it is called on request only, and the library
    then keeps the functions of loaded files."""
    (tmp_path / 'model.py').write_text(MODEL + FROZEN)
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_WITH_MODULES': asked, 'TFI_OUTPUT_DIR': str(tmp_path / 'run'),
           'MALLOC_PERTURB_': '165'}
    result = execute([python, 'model.py'], env, tmp_path)
    assert result.rc == 0, result.err[-2000:]
    rows, = functions(read(tmp_path / 'run')).values()
    assert len(rows) > 300 and ({f.modules for f in rows} == {None}) == (asked == '0')


@short_form(1, 'variables', [{}, {'TORCH_SHIFTS': 'dims'}], ids=['direct', 'exported'])
def test_a_program_with_its_own_operator_new(testlib, python, tmp_path, variables):
    """libtorch's memory from the program's operator new goes back to the program's operator delete."""
    (tmp_path / 'model.py').write_text(MODEL + '''
forward(), both(), threads()
for i in range(50):
    x = torch.cat([torch.randn(3, 4)] * 2)
    x.to(torch.bfloat16), torch.add(x, x, alpha=2.5 + i), torch.arange(5 + i), x.split([3, 3])
''')
    env = {**clean_environment(), 'LD_PRELOAD': f'{testlib}:{OWN_NEW}', 'TFI_WITH_MODULES': '1', 'TFI_OUTPUT_DIR': str(tmp_path / 'run'), **variables}
    result = execute([python, 'model.py'], env, tmp_path)
    assert result.rc == 0, result.err[-2000:]
    trace = read(tmp_path / 'run')
    rows = [f for rows in functions(trace).values() for f in rows]
    assert len(rows) > 1500 and sum(f.modules is not None for f in rows) > 500
    types = {trace.strings[r.values['types']] for r in trace.records if r.kind == 'op' and r.values['types']}
    assert any(b'"float"' in t for t in types)
