"""test_cache_dit - without a device, an open cache-dit context records exactly the activities it asks for, and its files have just these.

With a device cache-dit's own profiler runs: test_cache_dit_gpu. The real package marks a script on the CPU; tests/tfr.py writes traces with device records. Only
Python reads the files, as JSON.
"""

import functools
import gzip
import json
import pickle
import re
from collections import Counter
from pathlib import Path

import pytest

import cachedit_alone
import scripted
from conftest import BUILD, built, clean_environment, execute, short_form
from optrace import OpTrace
from test_device_records import US, ticks
from tfr import NESTED, STAGE, rec

CACHE_DIT = 0x8000
SHAPES = {'Input Dims', 'Input type', 'Input Strides', 'Concrete Inputs', 'FLOPs'}

# Each context has one more addition, of its own size.
SCRIPT = '''
import warnings; warnings.filterwarnings('ignore')
import torch
from cache_dit.profiler import ProfilerContext, profile_function
def add(size):
    with torch.profiler.record_function('step'):
        torch.ones(size) + 1
add(10)
with ProfilerContext(activities=['CPU'], profile_name='plain', with_stack=False, record_shapes=False):
    add(11)
with ProfilerContext(activities=['CPU', 'MEM'], profile_name='memory', with_stack=False):
    add(12)
with ProfilerContext(profile_name='usual'):
    add(13)
with ProfilerContext(activities=['GPU'], profile_name='device'):
    add(14)
    with ProfilerContext(activities=['CPU'], profile_name='inner'):
        add(15)
    with ProfilerContext(activities=['MEM'], profile_name='blocks'):
        add(16)
profile_function(activities=['CPU'], profile_name='function')(add)(17)
with ProfilerContext(enabled=False, activities=['GPU']):
    add(18)
'''


@pytest.fixture(scope='module')
def play(lib, python, tfanalyze, tmp_path_factory):
    """play(whole=False, **env) -> trace, {name: trace file} and snapshot names of a report; whole: all of cache-dit. Runs once."""
    @functools.cache
    def play(whole=False, **env):
        place = tmp_path_factory.mktemp('cache-dit')
        env = {**clean_environment(), 'LD_PRELOAD': str(lib), 'CACHE_DIT_TORCH_PROFILER_DIR': str(place / 'run'),
               **({} if whole else cachedit_alone.environment(python, place)), **env}
        result = execute([python, '-c', SCRIPT], env, place)
        assert result.rc == 0 and not result.err, result.err[-2000:]
        assert execute([tfanalyze, 'report', place / 'run'], clean_environment(), place).rc == 0
        trace, = (t for t in scripted.traces(place / 'run') if scripted.stages(t))
        files = {p.name.removesuffix('.trace.json.gz'): read(p) for p in (place / 'run').glob('*.trace.json.gz')}
        return trace, files, {p.name.partition('-rank0-memory-')[0] for p in (place / 'run').glob('*.pickle')}
    return play


def read(path):
    with gzip.open(path, 'rt') as file:
        return [e for e in json.load(file)['traceEvents'] if e['ph'] != 'M']


def categories(events):
    return Counter(e['cat'] for e in events)


def adds(events):
    """The arguments of the additions in a file."""
    return [e['args'] for e in events if e['cat'] == 'cpu_op' and e['name'] == 'aten::add']


@short_form(1, 'whole', [False, True])
def test_as_it_was_asked_for(play, whole):
    _, files, snapshots = play(whole)
    for events in files.values():  # functions are there where operators have stacks, as in torch's traces
        assert ('python_function' in categories(events)) == any('Call stack' in e.get('args', {}) for e in events)
    kinds = {name: set(categories(events)) - {'python_function'} for name, events in files.items()}
    assert kinds['plain'] == kinds['usual'] == kinds['inner'] == kinds['function'] == {'user_annotation', 'cpu_op'}
    assert kinds['memory'] == {'user_annotation', 'cpu_op', 'cpu_instant_event'}
    assert kinds['device'] == {'user_annotation'}  # there is no device
    assert 'blocks' not in kinds and snapshots == {'memory', 'blocks'}
    has = {name: [(bool(SHAPES & set(a)), 'Call stack' in a) for a in adds(files[name])] for name in kinds if 'cpu_op' in kinds[name]}
    assert has.pop('step_rank0') and has == {'plain': [(False, False)], 'memory': [(True, False)], 'usual': [(True, True)],
                                             'inner': [(True, True)], 'function': [(True, False)]}
    assert '<string>' in adds(files['usual'])[0]['Call stack']


def test_nothing_else_is_recorded(play):
    """An unwanted activity is not recorded at all; nested contexts get the union of their activities."""
    trace, _, _ = play()
    operators = [r.values for r in trace.records if r.kind == 'op' and scripted.text(trace, r.values['name']) == 'aten::add']
    operators.sort(key=lambda v: v['time'])
    sizes = [scripted.text(trace, v['shapes']) for v in operators]
    assert [s and json.loads(s)[0][0] for s in sizes] == [10, None, 12, 13, 15, 17, 18]
    assert [bool(v['stack']) for v in operators] == [False, False, True, True, True, False, False]
    blocks = [abs(r.values['bytes']) // 4 for r in trace.records if r.kind == 'memory' and r.values['device'] < 0]
    assert {10, 12, 16, 18} <= set(blocks) and not {11, 13, 14, 15, 17} & set(blocks)
    said = [(scripted.text(trace, r.values['cause']), r.values['activities']) for r in sorted(
        (r for r in trace.records if r.kind == 'recording'), key=lambda r: r.values['time'])]
    cpu, gpu, mem, nccl, ops, stacks = 1, 2, 4, 8, 16, 64
    usual = cpu | gpu | mem | nccl | ops
    assert said == [('profiler', a) for a in (
        cpu | nccl | ops, usual, cpu | mem | nccl | ops | stacks, usual, usual & ~mem | stacks, usual, cpu | gpu | stacks,
        usual & ~mem | stacks, cpu | gpu | stacks, cpu | gpu | mem | stacks, cpu | gpu | stacks, usual, cpu | nccl | ops, usual)]


DECORATED = '''
import warnings; warnings.filterwarnings('ignore')
from cache_dit.profiler import profile_function
decorate = profile_function(activities=['CPU'])
@decorate
def first(): pass
@decorate
def second(): pass
first(), second(), second()
'''


def test_one_decorator_for_two_functions(run, python, tmp_path):
    """Without a name, each function of a decorator is a stage of its own name."""
    env = {**cachedit_alone.environment(python, tmp_path), 'CACHE_DIT_TORCH_PROFILER_DIR': tmp_path / 'run'}
    result = run([python, '-c', DECORATED], env)
    assert result.rc == 0 and not result.err, result.err[-2000:]
    path, = result.dir.glob('*.timing.json')
    assert {stage: said['calls'] for stage, said in json.loads(path.read_text())['stages'].items()} == {'first': 1, 'second': 2}


@short_form(1, 'env, expected', [
    ({'TFI_ACTIVITIES': 'cpu,gpu,mem,ops'}, {
        'plain': (True, True, False, False), 'usual': (True, True, True, False), 'device': (True, True, True, False),
        'blocks': (True, True, True, False)}),
    ({'TFI_WITH_STACK': '0', 'TFI_RECORD_SHAPES': '1'}, {
        'plain': (True, False, True, False), 'usual': (True, False, True, False), 'memory': (True, True, True, False),
        'device': (False, False, False, False)}),
    ({'TFI_PROFILE_MEMORY': '0', 'TELEFUSER_TORCH_PROFILER_RECORD_SHAPES': '0'}, {
        'memory': (True, False, False, False), 'usual': (True, False, False, True)}),
], ids=lambda v: '-'.join(v) if all(isinstance(x, str) for x in v.values()) else '')
def test_the_users_environment_goes_first(play, env, expected):
    """The user's variables override each context's operators, blocks, shapes and stacks."""
    _, files, snapshots = play(**env)
    for name, wanted in expected.items():
        arguments = adds(files[name])
        assert (bool(arguments), categories(files[name])['cpu_instant_event'] > 0, any(SHAPES & set(a) for a in arguments),
                any('Call stack' in a for a in arguments)) == wanted, name
    assert ('memory' in snapshots) == (env.get('TFI_PROFILE_MEMORY') != '0')


# ---- the directory of the files ----

# Prints the path at which it expects its trace, as cache-dit's own examples do.
DIRECTORIES = '''
import warnings; warnings.filterwarnings('ignore')
import sys, torch
from cache_dit.profiler import ProfilerContext
for name, directory in (('a', sys.argv[1]), ('b', 'relative/deep'), ('c', None), ('.d\u00e9/e #12', None)):
    with ProfilerContext(activities=['CPU', 'MEM'], profile_name=name, output_dir=directory) as context:
        torch.ones(3) + 1
    print(f'{context.output_dir}/{context.trace_path.name}')
'''


def test_directories_that_cache_dit_asks_for(run, python, analyze, tmp_path):
    there, here = tmp_path / 'profiles', tmp_path / 'relative' / 'deep'
    default, alone = tmp_path / 'default', cachedit_alone.environment(python, tmp_path)
    result = run([python, '-c', DIRECTORIES, there], {'CACHE_DIT_TORCH_PROFILER_DIR': default, **alone})
    assert result.rc == 0, result.err
    assert not there.exists() and not here.exists() and not default.exists()
    there.mkdir()
    (there / 'a.trace.json.gz').write_bytes(gzip.compress(b'{"traceEvents": []}'))  # another tool's file
    kinds = lambda directory, name: sorted(p.name.removeprefix(name).partition('-memory-')[0] + p.suffix for p in directory.glob(f'{name}*')
                                           if 'breakdown' not in p.name)
    all_of_it = ['-rank0.pickle', '-rank0.txt', '.trace.json.gz.gz']
    for _ in range(2):
        screen = analyze('report', result.dir, format=None).out
        assert kinds(there, 'a') == sorted([*all_of_it, '~2.trace.json.gz.gz']) and kinds(here, 'b') == all_of_it
        assert kinds(result.dir, 'a') == kinds(result.dir, 'b') == kinds(result.dir, 'c') == [] and kinds(default, 'c') == all_of_it
        printed = [tmp_path / line for line in result.out.splitlines()]
        assert len(printed) == 4 and printed[3].name == '_d___e *.trace.json.gz' and all(p.is_file() for p in printed)
        assert f"written to {there}, cache-dit's directory: 3 files" in screen.splitlines()
        assert f"written to {here}, cache-dit's directory: 3 files" in screen.splitlines()
    assert not read(there / 'a.trace.json.gz') and adds(read(there / 'a~2.trace.json.gz'))
    snapshot, = there.glob('a-rank0-memory-*.pickle')
    assert any(e['size'] == 12 and e['frames'] for e in pickle.loads(snapshot.read_bytes())['device_traces'][-1])

    before = sorted(there.iterdir()) + sorted(here.iterdir())
    analyze('report', result.dir, '--output', tmp_path / 'given', format=None)
    assert all(kinds(tmp_path / 'given', name) == all_of_it for name in 'abc')
    assert sorted(there.iterdir()) + sorted(here.iterdir()) == before


def test_a_directory_that_can_not_be(run, python, analyze, tmp_path, tfanalyze):
    """An impossible directory gives one message, and the files lie beside the others."""
    (tmp_path / 'file').write_text('')
    env = {'CACHE_DIT_TORCH_PROFILER_DIR': tmp_path / 'run', **cachedit_alone.environment(python, tmp_path)}
    result = run([python, '-c', DIRECTORIES, tmp_path / 'file' / 'below'], env)
    assert result.rc == 0, result.err
    answer = execute([tfanalyze, 'report', result.dir], clean_environment(), tmp_path)
    assert answer.rc == 0 and len(answer.err.splitlines()) == 1 and f'{tmp_path}/file/below' in answer.err, answer.err
    assert (result.dir / 'a.trace.json.gz').exists()


# ---- with device records ----

def profiled(path, held, **more):
    """A context around an operator that launches; `held` lists the activities that its files should have."""
    t = OpTrace(rank=0)
    t.ranges += 1
    t.records.append(rec('range_end', name=t.w.string('flux'), time=ticks(900 * US), duration=ticks(800 * US), id=t.ranges,
                         flags=NESTED | STAGE | CACHE_DIT, thread=1))
    t.op('aten::mm', 110 * US, 150 * US, shapes=[[2, 2], [2, 2]], types=['float', 'float'], flops=16, sequence=3,
         frames=[('step', 'm.py', 3)])
    t.op('MmBackward0', 400 * US, 450 * US, sequence=3, forward=1)
    t.later_on(1, rec('call', func=t.w.string('nccl\x1fNCCL\x1fncclAllReduce\x1f'), time=ticks(300 * US), duration=ticks(10 * US), args=[]))
    t.call('cudaMalloc', 310 * US, 10 * US, kind='ALLOC')
    t.work('kernel', 120 * US, 600 * US, 10 * US, name='gemm')
    t.work('copy', 320 * US, 620 * US, 10 * US, direction=1, bytes=64)
    t.block(126 * US, 0x1000, 4096, 4096, 0)
    if held is not None:
        t.said('cache_dit.profile.flux', json.dumps({'name': 'flux', 'dir': str(path.parent / 'profiles'), 'holds': held, **more}))
    return t.save(path)


HOST, CALLS, DEVICE = {'cpu_op'}, {'cuda_runtime'}, {'kernel', 'gpu_memcpy', 'ac2g'}
KINDS = [(None, HOST | CALLS | DEVICE | {'cpu_instant_event'}), (['cpu'], HOST | CALLS), (['gpu'], CALLS | DEVICE),
         (['cpu', 'gpu', 'stack', 'shapes'], HOST | CALLS | DEVICE), (['cpu', 'mem'], HOST | CALLS | {'cpu_instant_event'})]


@pytest.mark.parametrize('held, expected', KINDS, ids=lambda v: '-'.join(v) if isinstance(v, list) else '')
def test_processors(analyze, tmp_path, held, expected):
    """Calls belong to both host and device, as with torch.profiler. A directory of another machine is ignored."""
    profiled(tmp_path / 'rank0.elsewhere.4242.tfr', held)
    analyze('report', tmp_path, format=None)
    assert not (tmp_path / 'profiles').exists()
    path, = tmp_path.glob('flux*.trace.json.gz')
    events = read(path)
    without_nccl = [e for e in events if e['name'] != 'ncclAllReduce']
    kinds = set(categories(without_nccl))
    assert kinds - {'fwdbwd', 'python_function', 'gpu_user_annotation'} == expected | {'user_annotation'}
    assert ('gpu_user_annotation' in kinds) == ('kernel' in expected)
    assert ('python_function' in kinds) == any('Call stack' in e.get('args', {}) for e in events)
    assert (len(events) > len(without_nccl)) == ('cpu_op' in expected)
    for e in events:
        if e['cat'] == 'kernel':
            assert ('External id' in e['args']) == ('cpu_op' in expected)
    if held and 'cpu' in held:
        mm = next(e for e in events if e['name'] == 'aten::mm')['args']
        assert bool(SHAPES & set(mm)) == ('shapes' in held) and ('Call stack' in mm) == ('stack' in held)


def test_memory_alone_has_no_trace(analyze, tmp_path):
    profiled(tmp_path / 'rank0.elsewhere.4242.tfr', ['mem', 'stack', 'shapes'])
    analyze('report', tmp_path, format=None)
    assert not list(tmp_path.glob('*.trace.json.gz')) and len(list(tmp_path.glob('flux-rank0-memory-*'))) == 2


# ---- the documented example ----

EXAMPLE = '''
import time
import warnings; warnings.filterwarnings('ignore')
import torch
from cache_dit._utils.utils import create_profiler_from_args, get_args

args = get_args()
for key, value in dict(wait=0, warmup=1, active=3, repeat=1).items():  # documented defaults; this release's parser has none
    setattr(args, 'profile_' + key, getattr(args, 'profile_' + key, value))

def pipe(prompt, height, width, num_inference_steps, generator):
    latents = torch.arange(height, dtype=torch.float32).to('cuda' if torch.cuda.is_available() else 'cpu')
    for _ in range(num_inference_steps):
        latents = latents * 0.5
    return latents.cpu()

def run_pipe():
    steps = args.num_inference_steps if args.num_inference_steps is not None else 28
    if args.profile and args.num_inference_steps is None:
        steps = 3
    return pipe('a cat', height=1024, width=1024, num_inference_steps=steps, generator=torch.Generator('cpu').manual_seed(0))

_ = run_pipe()  # warmup
start = time.time()
if args.profile:
    profiler = create_profiler_from_args(args, profile_name="flux_inference")
    with profiler:
        image = run_pipe()
    print(f"Profiler traces saved to: {profiler.output_dir}/{profiler.trace_path.name}")
else:
    image = run_pipe()
end = time.time()
'''


@pytest.mark.parametrize('device', [pytest.param('cpu', marks=pytest.mark.soak), 'gpu'])
def test_the_documented_example_with_default_flags(run, python, lib, analyze, tmp_path, device):
    """run_flux.py --profile of cache-dit's documentation, with its own flags and a pipeline whose steps are invisible.

    The context is recorded whole, although the flags want a warm-up step and three active ones. The printed path has a file:
    cache-dit's own on a device, without one that of a report."""
    (tmp_path / 'run_flux.py').write_text(EXAMPLE)
    gpu = BUILD / 'simgpu'
    libraries = [lib, built(gpu / 'libcudart.so.13'), built(gpu / 'libcupti.so.13')] if device == 'gpu' else [lib]
    env = {'CACHE_DIT_TORCH_PROFILER_DIR': tmp_path / 'profiles', **({'LD_LIBRARY_PATH': gpu} if device == 'gpu' else {})}
    result = run([python, '-W', 'ignore', 'run_flux.py', '--profile'], env, preload=':'.join(map(str, libraries)))
    assert result.rc == 0, result.err[-2000:]
    printed = Path(re.search(r'^Profiler traces saved to: (.*)$', result.out, re.M)[1])
    assert printed.name == 'flux_inference.trace.json.gz' and printed.exists() == (device == 'gpu')
    assert 'flux_inference' in result.err and 'recorded whole' in result.err
    analyze('report', result.dir, format=None)
    events = read(printed)
    assert sum(e['name'] == 'aten::mul' for e in events) == 3
    if device == 'gpu':
        rows = analyze('breakdown', '--stage', 'flux_inference', result.dir)['rows']
        assert [(r['stage'], r['calls']) for r in rows] == [('flux_inference', 3)]
        assert sum(e.get('cat') == 'kernel' for e in events) == 3
    else:
        rows = analyze('ops', '--stage', 'flux_inference', result.dir)['rows']
        assert {r['name']: r['calls'] for r in rows}['aten::mul'] == 3
