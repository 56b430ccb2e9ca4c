"""test_dispatches - calls into operator libraries other than torch, by stage, in `tfanalyze launches`.

The programs count their own calls and where they make them. tests/python/test_pipelines.py does the same with torchfx.
"""

import csv
import io
import json
import re

import pytest

import pythons
from kineto import Trace as Written

# A module imported late, on other threads and after a fork. Each process prints its calls by function and stage.
LATE = '''
import collections, json, os, sys, threading
counts, at, outside = collections.Counter(), threading.local(), threading.Barrier(2)

def call(times):
    import _bisect
    for _ in range(times):
        _bisect.bisect_right([1, 2, 3], x=2), _bisect.bisect_left([1, 2, 3], 2)
        counts[at.stage, '_bisect.bisect_right'] += 1
        counts[at.stage, '_bisect.bisect_left'] += 1

def inside(name, function, times):
    before, at.stage = getattr(at, 'stage', '(none)'), name
    try:
        function(times)
    finally:
        at.stage = before

def first(times):
    call(times)

def second(times):
    call(times)
    inside('first', first, 2)
    call(1)

def thread(times):
    inside('(none)', call, 1)
    outside.wait()  # else calls outside stages would go to the only thread with a stage
    inside('second', second, times)

def say():
    print(json.dumps([[*key, n] for key, n in counts.items()]), flush=True)

inside('first', first, 2)
running = [threading.Thread(target=thread, args=(n,)) for n in (3, 4)]
[t.start() for t in running], [t.join() for t in running]
while any(os.path.exists(f'/proc/self/task/{t.native_id}') for t in running):
    pass  # join() returns before a thread has left the kernel, and from 3.12 on Python warns of such a one at os.fork()
child = os.fork()
if not child:
    counts.clear()
    inside('second', second, 5)
    from _bisect import insort_left
    insort_left([1, 2], 3)
    counts['(none)', '_bisect.insort_left'] += 1
    say()
    os._exit(0)
os.waitpid(child, 0)
say()
'''


def sums(lines):
    """{(stage, function): calls} of all processes."""
    found = {}
    for line in lines:
        for stage, name, count in json.loads(line):
            found[stage, name] = found.get((stage, name), 0) + count
    return found


def dispatches(rows):
    return {(r['stage'], r['name']): int(r['dispatches']) for r in rows if r['dispatches'] not in ('', 0, '0')}


@pytest.mark.parametrize('chosen', [None, '*', 'first', 'sec*'])
@pythons.by_version()
def test_builtins_by_stage(run, analyze, tmp_path, python, chosen):
    script = tmp_path / 'late.py'
    script.write_text(LATE.replace('import collections', 'import _bisect, collections', 1) if chosen == '*' else LATE)
    env = {'TFI_NATIVE': '_bisect', 'TFI_STAGES': '__main__:first,__main__:second', 'ENABLE_PROFILER_NAMES': chosen}
    result = run([python.path, '-S', script], env)
    assert (result.rc, result.err) == (0, '')
    wanted = sums(result.out.splitlines())
    if chosen:  # first() inside second() is recorded with either name
        wanted = {key: n for key, n in wanted.items() if key[0] != '(none)' and key[0].startswith(chosen.strip('*'))}
    if chosen == 'sec*':
        wanted.update({('first', f'_bisect.bisect_{way}'): 3 * 2 for way in ('left', 'right')})
    answer = analyze('launches', result.dir)
    assert dispatches(answer['rows']) == wanted and answer['totals']['dispatches'] == sum(wanted.values())


ACTIVE = '''
import _bisect
def stage(times):
    for _ in range(times):
        _bisect.bisect_left([1], 1)
stage(7)
print(type(_bisect.bisect_left.__self__).__name__)
'''


@pytest.mark.parametrize('activities, switch, left_alone', [
    ('ops', None, False), ('cpu,gpu,mem', None, True), ('ops', 'on', False), ('ops', '-ops', False)])
def test_builtins_are_operators(run, analyze, tmp_path, activities, switch, left_alone):
    """Builtins are recorded while operators are; if operators can never be, the module stays untouched."""
    (tmp_path / 'active.py').write_text(ACTIVE)
    env = {'TFI_NATIVE': '_bisect', 'TFI_STAGES': '__main__:stage', 'TFI_ACTIVITIES': activities}
    if switch:
        (tmp_path / 'switch').write_text(switch)
        env['TFI_TRIGGER'] = f'file:{tmp_path}/switch'
    plain, result = (run([pythons.SEEN[-1].path, tmp_path / 'active.py'], env, preload=preload) for preload in (False, True))
    assert (result.rc, result.err) == (0, '') and (result.out == plain.out) == left_alone
    recorded = not left_alone and switch != '-ops'
    assert analyze('launches', result.dir)['totals']['dispatches'] == (7 if recorded else None)


# torch adds documentation to its own undocumented builtins, and refuses other functions.
OF_TORCH = '''
import torch
from torch.profiler import record_function
with record_function('stage'):
    found = [torch._C._has_torch_function_unary(1) for _ in range(3)]
print(found, torch.overrides.has_torch_function.__doc__, torch._C._parse_dispatch_key.__doc__)
'''


def test_builtins_of_torch_itself(run, forked, analyze, python):
    plain, result = forked(['python', '-c', OF_TORCH]), run([python, '-c', OF_TORCH], {'TFI_NATIVE': 'torch._C'})
    assert (result.rc, result.out) == (plain.rc, plain.out) and 'tfinject' not in result.err, result.err[-2000:]
    assert plain.rc == 0 and 'Check for __torch_function__' in plain.out
    assert dispatches(analyze('launches', result.dir)['rows'])['stage', 'torch._C._has_torch_function_unary'] == 3


NAMESPACES = '''
import torch
import torch._higher_order_ops, torch._inductor.lowering, torch.ao.quantization, torch.distributed.fsdp, torch.distributed.tensor
import torch.distributed._functional_collectives, torch.distributed._symmetric_memory
print(*sorted({name.split('::')[0] for name in torch._C._dispatch_get_all_op_names()}))
'''


def test_operators_that_torch_registers_are_no_dispatches(run, analyze, python, tmp_path):
    """torch lists its own operators. Their namespaces, and what it records of DistributedDataParallel, are no other library."""
    result = run([python, '-c', NAMESPACES], preload=False)
    spaces = result.out.split()
    assert result.rc == 0 and len(spaces) > 20 and {'aten', 'quantized', '_c10d_functional'} < set(spaces), result.err
    trace = Written()
    names = [f'{space}::op' for space in spaces] + ['torch.distributed.ddp.reducer::copy_bucket_to_grad', 'other::op', 'torchvision::nms']
    for at, name in enumerate(names):
        trace.operator(name, 10 * at, 5)
    trace.write(tmp_path / 'trace.json')
    assert dispatches(analyze('launches', tmp_path / 'trace.json')['rows']) == {('(run)', 'other::op'): 1, ('(run)', 'torchvision::nms'): 1}


# Operators of two libraries and of torch, inside and outside stages, on two threads; their implementations count calls.
MIXED = '''
import collections, contextlib, json, threading, _bisect, torch
from torch.profiler import record_function
counts, at = collections.Counter(), threading.local()

def count(name):
    counts[getattr(at, 'stage', '(none)'), name] += 1

@contextlib.contextmanager
def stage(name):
    before, at.stage = getattr(at, 'stage', '(none)'), name
    with record_function(name):
        yield
    at.stage = before

def twice(x):
    count('mine::twice')
    return x + x

def thrice(x):
    count('other.lib::thrice')
    return torch.ops.mine.twice(x) + x

libraries = torch.library.Library('mine', 'DEF'), torch.library.Library('other.lib', 'DEF')
for library, function in zip(libraries, (twice, thrice)):
    library.define(function.__name__ + '(Tensor x) -> Tensor')
    library.impl(function.__name__, function, 'CompositeExplicitAutograd')
x = torch.ones(3)

def work(name, times):
    with stage(name):
        for _ in range(times):
            torch.ops.mine.twice(x), torch.relu(x), getattr(torch.ops, 'other.lib').thrice(x)
            _bisect.bisect_left([1, 2], 2)
            count('_bisect.bisect_left')

work('first', 3)
thread = threading.Thread(target=work, args=('on a thread', 2))
thread.start(), thread.join()
with stage('last'):
    torch.ops.mine.twice(x)
    with stage('inner'):
        torch.ops.mine.twice(x + 1)
torch.ops.mine.twice(x)
print(json.dumps([[*key, n] for key, n in counts.items()]))
'''


@pytest.mark.parametrize('chosen', [None, 'first,inner'])
def test_operators_of_libraries_and_builtins(run, analyze, python, chosen):
    result = run([python, '-c', MIXED], {'TFI_NATIVE': '_bisect', 'ENABLE_PROFILER_NAMES': chosen})
    assert result.rc == 0 and 'tfinject' not in result.err, result.err[-2000:]
    wanted = sums(result.out.splitlines())
    assert len(wanted) == 9
    if chosen:
        wanted = {key: n for key, n in wanted.items() if key[0] in chosen.split(',')}
    answer = analyze('launches', result.dir)
    assert dispatches(answer['rows']) == wanted
    assert dispatches(csv.DictReader(io.StringIO(analyze('launches', result.dir, format='csv').out))) == wanted
    lines = analyze('launches', result.dir, format='text').out.splitlines()
    cells = [re.split(r'  +', line.strip()) for line in lines[:-1]]
    assert dispatches([dict(zip(cells[0], row)) for row in cells[1:]]) == wanted
    assert f'dispatches {sum(wanted.values())},' in lines[-1]
