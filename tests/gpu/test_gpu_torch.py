"""test_gpu_torch - a torch script with NVTX stages on the simulated GPU: torch.profiler and the library lose nothing.

The script runs plain, under the library, under torch.profiler and under both. Its first line of output has its results,
the second has the device work of each profiler session by name. The tests compare our records with the device model's
log, which counts every kernel, copy and set. torch would find its own libraries before those of LD_LIBRARY_PATH, so the
simulated runtime and CUPTI are preloaded.
"""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

import scripted
from conftest import AT_REST, BUILD, built, short_form

GPU = BUILD / 'simgpu'
KINDS = {'kernel': 'kernel', 'copy': 'memcpy', 'set': 'memset'}  # {kind of our records: kind in the log}
STAGES = {'text_encode': 1, 'denoise': 2, 'vae_decode': 3}

PIPELINE = """
import collections, json, sys
import torch; torch._lazy_modules.discard('_inductor')
from torch.profiler import ProfilerActivity, profile, record_function
nvtx = torch.cuda.nvtx
plan = dict(word.split('=')[::-1] for word in sys.argv[1:])  # the place where a session of the profiler starts or stops
session, sessions, kinds = None, [], ('kernel', 'gpu_memcpy', 'gpu_memset')


def at(place):
    global session
    if plan.get(place, '').startswith('stop'):
        session.stop()
        session.export_chrome_trace('session.json')
        with open('session.json') as file:
            events = [e for e in json.load(file)['traceEvents'] if e.get('cat') in kinds]
        sessions.append(collections.Counter(e['cat'] + ' ' + e['name'] for e in events))
    elif place in plan:
        session = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
        session.start()


at('begin')
x = torch.arange(1000, dtype=torch.float32).to('cuda')
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
outputs = []
for stage, steps in (('text_encode', 1), ('denoise', 2), ('vae_decode', 3)):
    at('before ' + stage)
    with nvtx.range(stage), record_function('operator of ' + stage):
        y = x + steps
        at('in ' + stage)
        with torch.cuda.stream(side):
            for step in range(steps):
                z = x * 2
        side.synchronize()
        outputs += [x.cpu(), torch.zeros(10 * steps, device='cuda').cpu()]
    torch.cuda.synchronize()
    at('after ' + stage)
at('end')
print([float(o.sum()) for o in outputs], [float(o[-1]) for o in outputs])
print(json.dumps(sessions, sort_keys=True))
"""

# Sessions of torch.profiler, and the number of kernels in each. A stage has one addition and then `steps` products.
PLANS = {
    'twice': (['start=before text_encode', 'stop=after text_encode', 'start2=in vae_decode', 'stop2=end'], [2, 3]),
    'around': (['start=begin', 'stop=end'], [9]),
    'none': ([], []),
    'inside': (['start=in denoise', 'stop=after denoise'], [2]),
    'around a stage': (['start=before denoise', 'stop=after denoise'], [3]),
    'interleaved': (['start=in text_encode', 'stop=in denoise'], [2]),
}


by_plan = short_form(1, 'plan', [pytest.param(p, id=p, marks=pytest.mark.xdist_group('torch-' + p)) for p in PLANS])


@pytest.fixture(scope='module')
def made():
    return {}


@pytest.fixture
def pipeline(run, python, tmp_path):
    """pipeline(plan, preload=…) -> outputs, sessions, log and, under the library, the trace."""
    (tmp_path / 'pipeline.py').write_text(PIPELINE)

    def pipeline(plan, preload=None, **env):
        libraries = [built(GPU / 'libcudart.so.13'), built(GPU / 'libcupti.so.13')]
        log = tmp_path / f'log-{bool(preload)}'
        env = {'LD_LIBRARY_PATH': GPU, 'SIMGPU_LOG': log, 'KINETO_LOG_LEVEL': 5, **env}
        preloads = ':'.join(map(str, filter(None, [preload, *libraries])))
        result = run([python, 'pipeline.py', *PLANS[plan][0]], env, preload=preloads)
        assert result.rc == 0, result.err[-3000:]
        outputs, sessions = result.out.splitlines()
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return SimpleNamespace(outputs=outputs, sessions=json.loads(sessions), log=lines,
                               said=[line for line in result.err.splitlines() if line.startswith('tfinject: ')],
                               trace=scripted.only(scripted.traces(result.dir)) if preload else None)
    return pipeline


@pytest.fixture
def both(pipeline, made, lib):
    """The plain run of that plan and the run under the library, each made only once."""
    def both(plan, **env):
        keys = [(plan, preload, *env.items()) for preload in (None, lib)]
        for key in keys:
            if key not in made:
                made[key] = pipeline(plan, preload=key[1], **env)
        return [made[key] for key in keys]
    return both


def kernels_seen(got):
    """The number of kernels in each session of torch.profiler."""
    return [sum(n for name, n in s.items() if name.startswith('kernel ')) for s in got.sessions]


def records(trace, kind):
    return [SimpleNamespace(**r.values) for r in trace.records if r.kind == kind]


def worked(log, kind):
    return [x for x in log if x['t'] == KINDS[kind]]


def assert_complete(got):
    """Our records are exactly the log's work by name, bytes and correlation id. Times are not compared here."""
    kernels = Counter((scripted.text(got.trace, r.name), r.correlation) for r in records(got.trace, 'kernel'))
    assert kernels == Counter((w['name'], w['correlation']) for w in worked(got.log, 'kernel'))
    for kind in ('copy', 'set'):
        ours = Counter((r.bytes, r.correlation) for r in records(got.trace, kind))
        assert ours == Counter((w['bytes'], w['correlation']) for w in worked(got.log, kind))
    # A flush of ours that runs while torch.profiler registers its clock has an overhead record with one time in each clock.
    lost = scripted.drops(got.trace)
    assert lost.pop('device_timeless', 0) <= len(got.sessions) and not lost
    assert got.trace.complete and got.said == []


@by_plan
def test_outputs_are_the_same(both, plan):
    alone, with_us = both(plan)
    assert with_us.outputs == alone.outputs
    for kind in KINDS:
        names = [Counter(w['name'] for w in worked(got.log, kind)) for got in (alone, with_us)]
        assert names[0] == names[1] and names[0]


@by_plan
def test_profiler_sees_the_same(both, plan):
    alone, with_us = both(plan)
    assert kernels_seen(alone) == PLANS[plan][1]
    assert with_us.sessions == alone.sessions


@by_plan
def test_ours_are_complete(both, plan):
    got = both(plan)[1]
    assert len(records(got.trace, 'kernel')) == 9
    assert_complete(got)


@pytest.mark.xdist_group('torch-twice')
def test_work_lies_in_its_stage(both):
    """Each stage has one addition and as many products as it has steps, by the times of the launches."""
    got = both('twice')[1]
    ends = {scripted.text(got.trace, r.name): r for r in records(got.trace, 'range_end')}
    assert set(STAGES) <= set(ends)
    launch = {'cudaLaunchKernel', '__cudaLaunchKernel', 'cudaLaunchKernelExC'}
    calls = [c for c in scripted.calls(got.trace) if c.name in launch and not c.result]
    starts = {r.id: r.time for r in records(got.trace, 'range_begin')}
    for stage, steps in STAGES.items():
        end = ends[stage]
        inside = [c for c in calls if starts[end.id] <= c.time < end.time]
        assert len(inside) == 1 + steps, stage


@short_form(1, 'nasty', ['order', 'late', 'thread'])
def test_nasty_cupti_beside_the_profiler(both, nasty):
    alone, with_us = both('around a stage', SIMCUPTI_NASTY=nasty)
    assert kernels_seen(alone) == PLANS['around a stage'][1]
    assert with_us.sessions == alone.sessions
    assert_complete(with_us)


BACKWARD = """
import threading, torch
from torch.profiler import record_function
x = torch.arange(1000, dtype=torch.float32).to('cuda').requires_grad_()
for i in range(5):
    with torch.cuda.nvtx.range('outer'):
        with record_function('forward'):
            z = ((x * 2 + 1) ** 2).abs()
        with record_function('backward'):
            z.sum().backward()
        thread = threading.Thread(target=lambda: x.detach() * 3)
        thread.start(), thread.join()
    x.detach() + 1
torch.cuda.synchronize()
""" + AT_REST


def test_device_sums_of_backward_operators(run, python, lib, analyze):
    """timing.json: autograd's launches count in the forward operator's stage, another thread's in the open stage.

    The sums equal those of the trace."""
    libraries = [lib, built(GPU / 'libcudart.so.13'), built(GPU / 'libcupti.so.13')]
    result = run([python, '-W', 'ignore', '-c', BACKWARD], {'LD_LIBRARY_PATH': GPU, 'KINETO_LOG_LEVEL': 5},
                 preload=':'.join(map(str, libraries)))
    assert result.rc == 0, result.err[-2000:]
    said = json.loads(next(result.dir.glob('rank*.timing.json')).read_text())
    rows = {r['stage']: r['device_us'] / 1000 for r in analyze('stages', result.dir)['rows'] if r['stage'] not in ('(none)', '(start-up)')}
    assert {n: s['device_sum_ms'] for n, s in said['stages'].items()} == pytest.approx(rows, abs=1e-9)
    assert rows['forward'] > rows['backward'] > 0 and rows['outer'] > rows['forward'] + rows['backward']
    assert 'device_records_left_out' not in said


STACKS = """
import torch
def products(n): return [x * k for k in range(n)]
def sums(n): return [products(2), x + n]
def both(n): return [sums(n), products(n), x.abs()]
def trains():
    x.grad = None
    (x * 2).exp().sum().backward()
with torch.no_grad():
    x = torch.arange(1000, dtype=torch.float32).to('cuda').requires_grad_()
for n in range(40):
    with torch.no_grad():
        both(n % 4)
    trains()
torch.cuda.synchronize()
""" + AT_REST
COSTS = '*exp_kernel* 31us\n*sum_functor* 23us\n*FillFunctor* 17us\n*AbsFunctor* 11us\n*add* 7us\n*BinaryFunctor* 5us\n*Mul* 3us\n'
# Products outside of trains() are 2 + n % 4 in each of the 40 rounds; trains() has one forward and two in the backward pass.
SPENT = {('sums', 'products'): 80 * 3, ('both', 'products'): 60 * 3, ('both', 'sums'): 40 * 7, ('<module>', 'both'): 40 * 11,
         ('<module>', 'trains'): 40 * (3 + 31 + 23 + 17 + 5 + 3)}


def test_device_time_by_stack_is_the_devices(run, python, lib, analyze, tmp_path):
    """`stacks --metric self_device` gives each function the cost of the kernels it launched, and nothing is missing from the log's sum.

    trains() also has the work of its backward pass, which another thread launches."""
    libraries = [lib, built(GPU / 'libcudart.so.13'), built(GPU / 'libcupti.so.13')]
    (tmp_path / 'stacks.py').write_text(STACKS)
    (tmp_path / 'script').write_text(COSTS)
    result = run([python, '-W', 'ignore', 'stacks.py'], {
        'LD_LIBRARY_PATH': GPU, 'SIMGPU_LOG': tmp_path / 'log', 'SIMGPU_SCRIPT': tmp_path / 'script', 'TFI_WITH_STACK': 1},
        preload=':'.join(map(str, libraries)))
    assert result.rc == 0, result.err[-2000:]
    found = Counter()
    for line in analyze('stacks', '--metric', 'self_device', result.dir, format=None).out.splitlines():
        stack, time = line.rsplit(' ', 1)
        frames = [f.rpartition(':_')[2].rpartition('_')[2] for f in stack.split(';') if 'stacks.py(' in f and 'listcomp' not in f]
        found[tuple(frames[-2:])] += int(time)
    log = [json.loads(line) for line in (tmp_path / 'log').read_text().splitlines()]
    copied = found.pop(('<module>',))
    assert found == SPENT
    assert sum(w['end'] - w['start'] for w in log if w['t'] == 'kernel') == sum(SPENT.values()) * 1000
    assert copied == sum(w['end'] - w['start'] for w in log if w['t'] == 'memcpy') // 1000
