"""test_torch_ops - records from libtorch's RecordFunction against torch.profiler's account of the same run.

The pipelines are scripts that print the answers of torch.profiler or of torch itself; tests/tfr.py reads the trace. No
test checks one of our numbers against another one of ours.
"""

import json
import re
from collections import Counter

import pytest

import tfr
from conftest import AT_REST, ROOT, clean_environment, execute, short_form

NATIVE, USER = 100, 7

# Every kind of input: lists, scalars, views, more than five dimensions, sparse, nested, meta, fake, undefined.
INPUTS = '''
import warnings
warnings.simplefilter('ignore')
import torch, threading
from torch.profiler import profile, record_function, ProfilerActivity, schedule
from torch._subclasses import FakeTensorMode
x = torch.randn(2, 3, requires_grad=True)
y = torch.randn(2, 3)

def inputs():
    torch.add(x, y, alpha=2.5)
    torch.cat([y, y]), torch.stack([y, y], 1), torch.cat([torch.randn(1) for _ in range(31)])
    torch.randn(2, 3, 4, 5, 6, 7).sum((1, 2))
    y.to(torch.bfloat16), y[torch.tensor([0, 1])], torch.arange(5), y.view(-1).split([2, 4])
    s = torch.eye(3).to_sparse()
    torch.sparse.mm(s, torch.randn(3, 2)), s.to_dense(), torch.eye(3).to_sparse_csr()
    n = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])
    n + n
    j = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=torch.jagged)
    j * 2
    m = torch.empty(3, 4, device='meta')
    m + m, m.t() @ m
    q = torch.randn(3, 3)
    q + q, q.t() + q, torch.clamp(q, 0), torch.clamp(q, 0.0)
    torch.nn.functional.conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), padding='same')
    torch.nn.functional.conv2d(torch.randn(1, 3, 8, 8), torch.randn(4, 3, 3, 3), padding=1, stride=2)
    torch.nn.functional.conv2d(torch.randn(3, 8, 8), torch.randn(4, 3, 3, 3))
    torch.full((2, 2), 1e-12), torch.full((2,), float('inf')), torch.complex(y, y) * (1 + 2j)
    torch.mul(y, True), torch.clamp(y, min=-0.0), torch.clamp(y, -1e11, 3)
    torch.fill(torch.complex(y, y), 1 - 2j)
    torch.arange(40).reshape([1] * 35 + [40]), torch.zeros([1] * 30).sum(list(range(30))), torch.zeros([1] * 31)
    torch.vmap(lambda a: a.sum())(y)
    with FakeTensorMode():
        torch.empty(3) + 1
    torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last) + 1
    torch._foreach_add([y, y], 1.5), torch.bmm(torch.randn(2, 3, 4), torch.randn(2, 4, 5))
    torch.baddbmm(torch.randn(2, 3, 5), torch.randn(2, 3, 4), torch.randn(2, 4, 5))
'''

TRAIN = INPUTS + '''
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
                            torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(12, 5, 8), torch.randn(12, 5, 4))

def train():
    for a, b in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(a), b)
        loss.backward()
        optimizer.step()
    (x * 3).sum().backward()

inputs(), train()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True) as p:
    with record_function('measured'):
        inputs(), train()
p.export_chrome_trace('kineto.json')
import json
json.dump([[e.name(), e.flops()] for e in p.profiler.kineto_results.events() if e.flops()], open('flops.json', 'w'))
'''


def read(directory, count=1):
    """The traces of a run directory, in the order of their names."""
    paths = sorted(directory.glob('*.tfr'))
    assert len(paths) == count, paths
    traces = [tfr.read(p) for p in paths]
    return traces[0] if count == 1 else traces


def text(trace, number):
    return trace.strings[number].decode() if number else None


def kind(trace, name):
    return [r for r in trace.records if r.kind == name]


def named(trace, kind_, **wanted):
    """Records of a kind whose columns have these values; `name` is a text."""
    return [r for r in kind(trace, kind_) if all((text(trace, r.values[k]) if k in ('name', 'key') else r.values[k]) == v
                                                 for k, v in wanted.items())]


def window(trace, name):
    """The time a stage was open, in ticks."""
    end, = named(trace, 'range_end', name=name)
    return end.values['time'] - end.values['duration'], end.values['time']


def operators(trace, within=None):
    """Operators in the order they began, each with its depth among its thread's operators."""
    begin, end = window(trace, within) if within else (0, 1 << 64)
    found = [r for r in kind(trace, 'op') if begin <= r.values['time'] <= end]
    found.sort(key=lambda r: (r.values['time'], -r.values['duration']))
    open_, rows = {}, []
    for r in found:
        stack = open_.setdefault(r.thread, [])
        while stack and stack[-1] <= r.values['time']:
            stack.pop()
        rows.append({'name': text(trace, r.values['name']), 'depth': len(stack), 'record': r.values, 'thread': r.thread,
                     **{k: text(trace, r.values[k]) for k in ('shapes', 'types', 'concrete', 'strides')},
                     **{k: r.values[k] for k in ('sequence', 'flops', 'scope', 'forward_thread')}})
        stack.append(r.values['time'] + r.values['duration'])
    return rows


ARGUMENTS = {'shapes': 'Input Dims', 'types': 'Input type', 'concrete': 'Concrete Inputs', 'strides': 'Input Strides'}


def kineto(path, within=None):
    """The same rows of a trace that torch.profiler wrote."""
    events = [e for e in json.loads(path.read_text())['traceEvents'] if e.get('ph') == 'X']
    begin, end = 0, 1e30
    if within:
        outer, = (e for e in events if e['cat'] == 'user_annotation' and e['name'] == within)
        begin, end = outer['ts'], outer['ts'] + outer['dur']
    found = sorted((e for e in events if e['cat'] == 'cpu_op' and begin <= e['ts'] <= end), key=lambda e: (e['ts'], -e['dur']))
    open_, rows = {}, []
    for e in found:
        stack = open_.setdefault(e['tid'], [])
        while stack and stack[-1] <= e['ts']:
            stack.pop()
        rows.append({'name': e['name'], 'depth': len(stack), 'sequence': e['args'].get('Sequence number', -1),
                     'forward_thread': e['args'].get('Fwd thread id', 0),
                     **{k: json.dumps(e['args'][a]) if a in e['args'] else None for k, a in ARGUMENTS.items()}})
        stack.append(e['ts'] + e['dur'])
    return rows


@pytest.fixture(scope='module')
def training(tmp_path_factory, lib, python, forked):
    """The directories of TRAIN's runs, with the library and without."""
    found = {}
    for name, extra in (('with', {'LD_PRELOAD': str(lib)}), ('without', {})):
        directory = tmp_path_factory.mktemp(name)
        env = {**clean_environment(), 'TFI_OUTPUT_DIR': str(directory / 'run'), **extra}
        result = execute([python, '-c', TRAIN], env, directory) if extra else forked(['python', '-c', TRAIN], cwd=directory)
        assert result.rc == 0, result.err
        assert 'tfinject:' not in result.err
        found[name] = directory
    return found


# ---- operators ----

def test_operators_are_the_profilers(training):
    ours = operators(read(training['with'] / 'run'), 'measured')
    theirs = kineto(training['with'] / 'kineto.json', 'measured')
    keys = ('name', 'depth', 'sequence', *ARGUMENTS)
    pick = [[{k: row[k] for k in keys} for row in rows] for rows in (ours, theirs)]
    assert len(ours) > 2500
    for mine, its in zip(*pick):
        assert mine == its
    assert len(ours) == len(theirs)
    assert {'TensorList', 'Scalar', 'ScalarList', 'c10::BFloat16', 'c10::complex<float>', ''} <= \
        {t for row in ours if row['types'] for t in json.loads(row['types'])}


def test_floating_point_operations(training):
    ours = [[row['name'], row['flops']] for row in operators(read(training['with'] / 'run'), 'measured') if row['flops']]
    assert ours == json.loads((training['with'] / 'flops.json').read_text())
    assert {'aten::mm', 'aten::addmm', 'aten::bmm', 'aten::baddbmm', 'aten::conv2d', 'aten::mul', 'aten::add'} == {n for n, _ in ours}


def test_backward_operators_name_the_thread_of_the_forward_one(training):
    trace = read(training['with'] / 'run')
    rows, theirs = operators(trace, 'measured'), kineto(training['with'] / 'kineto.json', 'measured')
    linked = [[bool(r['forward_thread']) for r in side if r['sequence'] >= 0] for side in (rows, theirs)]
    assert linked[0] == linked[1]
    forward = {(r['sequence'], r['thread']) for r in rows if not r['forward_thread']}
    backward = [r for r in rows if r['forward_thread'] and r['sequence'] >= 0]
    assert len(backward) > 100
    assert all((r['sequence'], r['forward_thread']) in forward for r in backward)


def test_the_users_profiler_sees_the_same(training):
    def account(directory):
        events = json.loads((directory / 'kineto.json').read_text())['traceEvents']
        drop = ('External id', 'Ev Idx', 'Record function id')
        return [(e['cat'], e['name'], {k: v for k, v in e['args'].items() if k not in drop})
                for e in sorted((e for e in events if e.get('cat') in ('cpu_op', 'user_annotation')), key=lambda e: e['ts'])]
    assert account(training['with']) == account(training['without'])


def test_how_they_were_read_is_in_the_trace(training):
    trace = read(training['with'] / 'run')
    said, = named(trace, 'metadata', key='torch.operators')
    assert text(trace, said.values['value']) == 'direct'
    assert not [m for m in kind(trace, 'message')]


# ---- selection ----

SELECTED = '''
import torch
from torch.profiler import record_function
a = torch.ones(2, 3)
a + a
for name in ('quiet', 'wanted'):
    with record_function(name):
        a * a
for _ in range(200): a - a
'''


@short_form(3, 'env, names, shaped', [
    ({'ENABLE_PROFILER_NAMES': 'want*'}, {'aten::mul'}, True),
    ({'TFI_RECORD_SHAPES': '0'}, {'aten::ones', 'aten::empty', 'aten::fill_', 'aten::add', 'aten::mul', 'aten::sub'}, False),
    ({'ENABLE_PROFILER_NAMES': ''}, set(), False),
    ({'TFI_ACTIVITIES': 'cpu,gpu'}, set(), False),
], ids=['names', 'no-shapes', 'none', 'not-ops'])
def test_selection(run, python, env, names, shaped):
    result = run([python, '-c', SELECTED], env=env)
    assert result.rc == 0 and 'tfinject:' not in result.err, result.err
    trace = read(result.dir)
    rows = operators(trace)
    assert {r['name'] for r in rows} == names
    assert all((r['shapes'] == '[[2, 3], [2, 3]]' and r['types'] == '["float", "float"]') == shaped
               for r in rows if r['name'] == 'aten::mul')
    assert all(not r[k] for r in rows for k in ('shapes', 'types', 'strides', 'concrete', 'flops') if not shaped)
    assert [text(trace, r.values['name']) for r in kind(trace, 'range_end')] == ['quiet', 'wanted']
    if names == {'aten::mul'}:
        assert len(rows) == 1
    memory = [r.values['device'] for r in kind(trace, 'stage_memory')]
    assert memory == [] if env.get('ENABLE_PROFILER_NAMES') == '' or 'TFI_ACTIVITIES' in env else set(memory) == {-1}
    if 'TFI_RECORD_SHAPES' in env:
        assert all(r['sequence'] >= 0 for r in rows if r['name'] == 'aten::mul')


def test_fork_after_import(run, python):
    result = run([python, '-c', '''
import os, torch
from torch.profiler import record_function
a = torch.ones(2, 3)
with record_function('parent'):
    a + a, a.mul(2)
    if not os.fork():
        with record_function('child'):
            for n in range(1, 6): torch.ones(n, 7).mul(2)
        os._exit(0)
    os.wait()
    a - a
'''])
    assert result.rc == 0, result.err
    found = {}
    for trace in read(result.dir, 2):
        for r in operators(trace):
            found.setdefault(min(text(trace, s.values['name']) for s in kind(trace, 'range_begin')), []).append((r['name'], r['shapes']))
    muls = [shapes for name, shapes in found['child'] if name == 'aten::mul' and not shapes.endswith('[]]]')]
    assert [f'[[{n}, 7], []]' in muls for n in range(1, 6)] == [True] * 5
    assert ('aten::sub', '[[2, 3], [2, 3], []]') in found['parent'] and ('aten::sub', '[[2, 3], [2, 3], []]') not in found['child']


def test_operators_survive_sigkill(run, python):
    result = run([python, '-c', '''
import os, torch
a = torch.ones(2, 3)
with torch.profiler.record_function('loop'):
    for _ in range(5000): a + a
    os.kill(os.getpid(), 9)
'''])
    assert result.rc == -9
    path, = result.dir.glob('*.tfr')
    trace = tfr.read(path, path.with_name(path.name + '.live').read_bytes())
    adds = [r for r in operators(trace) if r['name'] == 'aten::add']
    assert len(adds) == 5000
    assert {(r['shapes'], r['concrete']) for r in adds} == {('[[2, 3], [2, 3], []]', '["", "", "1"]')}


# ---- an unknown libtorch ----

@pytest.mark.soak
def test_layout_is_that_of_the_headers(python):
    """The table's layout of this torch equals the one that a compiler computes from its headers."""
    said = execute([python, '-c', 'import torch; print(torch.__path__[0] + "/include", torch.__version__)'], clean_environment()).out
    result = execute([ROOT / 'scripts/torch-layout', *said.split()], clean_environment(), timeout=400)
    assert result.rc == 0, result.err

    def rows(text):
        for first, last, fields in re.findall(r'^TORCH\((\d+), (\d+), (.*?)\)$', text, re.M | re.S):
            yield range(int(first), int(last) + 1), {k: int(v, 0) for k, v in re.findall(r'\.(\w+) = (\w+)', fields)}
    (version, found), = rows(result.out)
    known = [fields for versions, fields in rows((ROOT / 'preload/torch/layout.def').read_text()) if version[0] in versions]
    assert known == [found] and len(found) == 60


STRANGE = '''
import torch
with torch.profiler.record_function('stage'):
    a = torch.cat([torch.ones(2, 3), torch.ones(2, 3)])
    print(float((a @ a.t()).sum()))
'''


@short_form(2, 'env, how, warnings', [  # test_exported_functions_that_throw has another version too
    ({'TORCH_SHIFTS': 'sizes'}, 'exported', 1),
    ({'TORCH_CALLBACK': '1'}, 'off', 1),
    ({'TORCH_VERSION': '9.9.0'}, 'exported', 0),
    ({'TORCH_VERSION': '1.13.1+cu117'}, 'off', 1),
    ({'TORCH_SHIFTS': 'dims'}, 'exported', 1),
    ({'TORCH_SHIFTS': 'inputs'}, 'exported', 1),
    ({'TORCH_SHIFTS': 'type'}, 'exported', 1),
], ids=['sizes', 'callback', 'version', 'old', 'dims', 'inputs', 'type'])
def test_structures_that_do_not_match(run, python, env, how, warnings):
    result = run([python, '-c', STRANGE], env=env, preload='test')
    assert (result.rc, result.out) == (0, '48.0\n')
    lines = [line for line in result.err.splitlines() if line.startswith('tfinject:')]
    assert len(lines) == warnings, result.err
    trace = read(result.dir)
    said, = named(trace, 'metadata', key='torch.operators')
    assert text(trace, said.values['value']).startswith(how)
    assert len(named(trace, 'range_end', name='stage')) == 1
    rows = operators(trace)
    if how == 'off':
        assert not rows
        return
    shapes = {(r['name'], r['shapes'], r['types']) for r in rows}
    assert ('aten::cat', '[[], []]', '["GenericList", "Scalar"]') in shapes
    assert ('aten::mm', '[[4, 3], [3, 4]]', '["float", "float"]') in shapes


NESTED = '''
import torch
nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
plain = torch.ones(2, 2)
for _ in range(20):
    nested + nested
    plain - plain
'''


def test_exported_functions_that_throw(run, python):
    """libtorch warns of each exception in a callback. After the first one of a nested tensor its functions are not asked."""
    result = run([python, '-c', NESTED], {'TORCH_VERSION': '9.9.0'}, preload='test')
    assert result.rc == 0 and result.err.count('Exception in RecordFunction callback') == 1, result.err
    assert result.err.count('tfinject: ') == result.err.count('without shapes from now on') == 1, result.err
    rows = operators(read(result.dir))
    shapes = [r['shapes'] for r in rows if r['name'] == 'aten::sub']
    assert len(shapes) == 20 and not any(shapes)
    assert any(r['shapes'] for r in rows if r['name'] == 'aten::fill_')


# ---- details that only Python knows ----

NATIVE_CALLS = '''
with record_function('native'):
    out['found'] = _bisect.bisect_right([1, 2, 3], x=2)
    try:
        _bisect.bisect_right()
    except TypeError as e:
        out['error'] = str(e)
out['bisect'] = [_bisect.bisect_right.__name__, _bisect.bisect_right.__doc__, str(inspect.signature(_bisect.bisect_right)),
                 type(_bisect.bisect_right).__name__]
'''
ASKED = '''
import json, os, torch, torch.distributed as dist, inspect, _bisect
from torch.profiler import profile, record_function, ProfilerActivity
out = {}
''' + NATIVE_CALLS + '''
with record_function('all'):
    dist.init_process_group('gloo', init_method='file://' + os.path.abspath('meet'), rank=0, world_size=1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(4, 2)))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    out['parameters'] = [[p.untyped_storage().data_ptr(), p.untyped_storage().nbytes()] for p in model.parameters()]
    out['gradients'] = [[p.grad.untyped_storage().data_ptr(), p.untyped_storage().nbytes()] for p in model.parameters()]
    out['moments'] = [[optimizer.state[p]['exp_avg'].untyped_storage().data_ptr(), p.untyped_storage().nbytes()] for p in model.parameters()]
    a, b = torch.ones(5), torch.ones(5)
    with record_function('add'):
        c = torch.add(a, b)
    out['inputs'] = [[t.untyped_storage().data_ptr(), 20] for t in (a, b)]
    out['output'] = [[c.untyped_storage().data_ptr(), 20]]
    with profile(activities=[ProfilerActivity.CPU]) as p:
        p.add_metadata('who', 'a test')
        p.add_metadata_json('what', '{"list": [1, 2]}')
    p.export_chrome_trace('kineto.json')
    out['distributed'] = json.load(open('kineto.json'))['distributedInfo']
    loss = torch.compile(model, backend='eager', fullgraph=True)(torch.ones(2, 3))
    out['breaks'] = len(torch._dynamo.utils.counters['graph_break'])
    dist.destroy_process_group()
print(json.dumps(out))
''' + AT_REST
ASKED_ENV = {'TFI_NATIVE': '_bisect', 'TFI_MODULE_DEPTH': '2', 'TFI_TENSOR_ADDRESSES': '1'}


@pytest.fixture(scope='module')
def asked(tmp_path_factory, lib, python):
    """The output of ASKED, and the trace."""
    directory = tmp_path_factory.mktemp('asked')
    env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'TFI_OUTPUT_DIR': str(directory / 'run'), **ASKED_ENV}
    result = execute([python, '-c', ASKED], env, directory)
    assert result.rc == 0 and 'tfinject:' not in result.err, result.err
    return json.loads(result.out.splitlines()[-1]), read(directory / 'run')


def test_native_functions(asked, python):
    ours, trace = asked
    plain = execute([python, '-c', 'import contextlib, inspect, json, _bisect\nrecord_function = contextlib.nullcontext\n'
                     f"out = {{}}\n{NATIVE_CALLS}print(json.dumps(out))"], clean_environment())
    assert {k: ours[k] for k in ('found', 'error', 'bisect')} == json.loads(plain.out) and ours['breaks'] == 0
    calls = [r for r in operators(trace, 'native') if r['scope'] == NATIVE]
    assert [r['name'] for r in calls] == ['_bisect.bisect_right'] * 2
    assert all(r['record']['duration'] > 0 and not r['depth'] for r in calls)


def test_modules_as_stages(asked):
    trace = asked[1]
    names = Counter(text(trace, r.values['name']) for r in kind(trace, 'range_end') if r.values['flags'] & 0x2000)
    assert names == {'Sequential': 1, 'Sequential.0': 1, 'Sequential.1': 1, 'OptimizedModule': 1}


def test_storage_addresses(asked):
    ours, trace = asked

    def pairs(role, within=None, name=None):
        begin, end = window(trace, within) if within else (0, 1 << 64)
        flat = [v for r in kind(trace, 'tensors') if r.values['role'] == role and begin <= r.values['time'] <= end
                and name in (None, text(trace, r.values['name'])) for v in r.values['blocks']]
        return [[a & tfr.MASK, b] for a, b in zip(flat[::2], flat[1::2])]
    assert pairs(3, name='Adam') == ours['parameters']
    assert pairs(4, name='Adam') == ours['gradients']
    assert pairs(5, name='exp_avg') == ours['moments']
    assert pairs(1, 'add', 'aten::add') == ours['inputs']
    assert pairs(2, 'add', 'aten::add') == ours['output']


def test_metadata_of_the_job(asked):
    ours, trace = asked
    said = {text(trace, r.values['key']): (text(trace, r.values['value']), text(trace, r.values['source']))
            for r in kind(trace, 'metadata')}
    assert said['who'] == ('a test', 'torch.profiler')
    assert json.loads(said['what'][0]) == {'list': [1, 2]}
    assert json.loads(said['distributedInfo'][0]) == ours['distributed'] and said['distributedInfo'][1] == 'c10d'
    rank, = kind(trace, 'rank')
    assert (rank.values['rank'], rank.values['world'], text(trace, rank.values['source'])) == (0, 1, 'c10d')
    assert not {'record_shapes', 'with_flops'} & set(said), 'metadata must not have the entries of the profiler itself'


def test_nothing_is_left_in_torch(run, python, forked):
    """Parts that are off leave torch unchanged: functions, classes and hooks are the originals."""
    script = '''
import sys, torch
print(torch.autograd.profiler.record_function.__enter__.__module__, torch.nn.Module.__call__.__qualname__,
      len(sys.modules['torch.optim.optimizer']._global_optimizer_post_hooks), torch.nn.Module.__call__.__code__.co_filename[-9:],
      torch.profiler.profile.add_metadata.__qualname__, torch.__spec__.loader.__class__.__name__)
'''
    ours, plain = run([python, '-c', script]), forked(['python', '-c', script])
    assert (ours.rc, ours.out, ours.err) == (plain.rc, plain.out, plain.err)
    assert re.search(r'Module\._wrapped_call_impl 0 module\.py', ours.out)


ERRORS = '''
import io, sys, torch, traceback; torch._lazy_modules.discard('_inductor')
def metadata():
    with torch.profiler.profile() as p:
        p.add_metadata('key', 5)
def load():
    torch.jit.load(io.BytesIO(b'no archive'))
def part():
    from diffusers.pipelines.pipeline_utils import DiffusionPipeline
    class Pipeline(DiffusionPipeline):
        @property
        def config(self):
            raise RuntimeError('no configuration')
    pipeline = Pipeline.__new__(Pipeline)
    pipeline.__dict__['part'] = 1
    pipeline.part = 2
for act in sys.argv[1:]:
    try:
        globals()[act]()
    except Exception as error:
        print(type(error).__name__, [frame.name for frame in traceback.extract_tb(error.__traceback__)])
'''


@short_form(1, 'acts', [('metadata', 'load'), ('part',)])
def test_errors_look_the_same(run, python, forked, acts):
    """An error of a function that we stand in front of has none of our frames in its traceback."""
    plain = forked(['python', '-c', ERRORS, *acts])
    ours = run([python, '-c', ERRORS, *acts], {'TFI_STAGES': 'auto', 'TFI_WITH_MODULES': '1'})
    assert (ours.rc, ours.out) == (plain.rc, plain.out) and plain.out.count('\n') == len(acts), ours.out + plain.out


TIMED = '''
import torch
with torch.profiler.record_function('stage'):
    torch.ones(3) + 1
'''


@pytest.mark.parametrize('names, asked', [('', False), ('stage', True)])
def test_libtorch_is_asked_for_operators_only_where_they_are_wanted(run, analyze, python, names, asked):
    """libtorch prepares the arguments of every operator as soon as anybody asks; stages that are only timed do not."""
    result = run([python, '-c', TIMED], {'ENABLE_PROFILER_NAMES': names})
    assert (result.rc, result.err) == (0, '')
    facts = {r['values']['key']: r['values']['value'] for r in analyze('dump', result.dir)['rows'] if r['kind'] == 'metadata'}
    assert (facts['torch.operators'] != 'off: no stage is selected') == asked, facts
    assert [row['stage'] for row in analyze('stages', result.dir)['rows'] if row['stage'] != '(start-up)'][:1] == ['stage']
