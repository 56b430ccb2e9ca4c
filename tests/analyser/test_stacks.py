"""test_stacks - `tfanalyze stacks`: the lines of torch's export_stacks, and files that speedscope reads.

One run is under torch.profiler and under the library at the same time. Its exported trace must give torch's own lines,
and the library's trace the same stacks. A reader of speedscope's format here follows file-format-spec.ts of speedscope.
"""

import json
from collections import Counter, defaultdict

import pytest

import kineto
from optrace import OpTrace
from test_device_records import US

# Each function stands on one line: torch shows the line where a function begins, we show the current line.
PROGRAM = '''
import json, sys, torch; torch._lazy_modules.discard('_inductor')
w, x = torch.randn(8, 8, requires_grad=True), torch.randn(4, 8)
def multiply(x): return torch.matmul(torch.nn.functional.linear(x, w), w)
def middle(x): return multiply(x).relu() + x
def outer(x): return middle(x).sum()
def start(): [outer(x).backward() for _ in range(9)]; list(map(outer, [x]))
def top(): start()
with torch.profiler.profile(with_stack=True, experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True)) as p:
    top()
p.export_chrome_trace('trace.json')
p.export_stacks('stacks.txt', 'self_cpu_time_total')
json.dump([[e.name, e.stack, e.self_cpu_time_total] for e in p.events() if e.stack], open('events.json', 'w'))
'''
MARKS = str.maketrans(' ;\t\n', '____')
OPERATORS = {'aten::linear', 'aten::matmul', 'aten::mm', 'aten::relu', 'aten::sum', 'aten::add'}


def lines_of(text):
    """{stack: microseconds}; a stack has one line."""
    rows = [line.rsplit(' ', 1) for line in text.splitlines()]
    found = {stack: int(time) for stack, time in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.slow
@pytest.mark.torch
def test_lines_are_torchs(run, analyze, python, tmp_path):
    script = tmp_path / 'script.py'
    script.write_text(PROGRAM)
    result = run([python, script], env={'TFI_WITH_STACK': '1'})
    assert result.rc == 0, result.err
    written = Counter()  # torch's lines, added up
    for line in (tmp_path / 'stacks.txt').read_text().splitlines():
        stack, time = line.rsplit(' ', 1)
        written[stack] += int(time)
    events = json.loads((tmp_path / 'events.json').read_text())
    exact, count = Counter(), Counter()
    for _, stack, time in events:
        key = ';'.join(frame.translate(MARKS) for frame in reversed(stack))
        exact[key] += time
        count[key] += 1
    ours = lines_of(analyze('stacks', tmp_path / 'trace.json', format=None).out)
    assert set(written) <= set(ours) and len(ours) > 10
    for stack, time in exact.items():
        assert abs(ours.get(stack, 0) - int(time)) <= 1, stack  # torch adds doubles
        assert written[stack] <= ours.get(stack, 0) + 1 <= written[stack] + count[stack] + 2
    assert {s for s, t in exact.items() if t > 1.5} <= set(ours) <= set(exact)

    def of_program(frames):
        found = [f.split('/')[-1] for f in frames if 'script.py(' in f]
        return tuple(found[1:]) if len(found) > 1 and ':_top' in found[1] else None  # without <module>

    theirs = {of_program([f.translate(MARKS) for f in reversed(stack)]) for name, stack, _ in events if name in OPERATORS}
    mine = lines_of(analyze('stacks', result.dir, format=None).out)
    assert {of_program(stack.split(';')) for stack in mine} - {None} >= theirs - {None} and len(theirs) >= 4
    assert all('(' in frame for stack in mine for frame in stack.split(';')), 'only Python frames'


# ---- small traces ----

def small(rank=0):
    """Python functions around operators, one of which launches a kernel; the second step has another stack."""
    t = kineto.Trace(distributedInfo={'backend': 'nccl', 'rank': rank, 'world_size': 2})

    def function(name, ts, dur, **more):
        t.add('python_function', name, ts, dur, args={'Python id': ts}, **more)
    t.stage('ProfilerStep#1', 90, 220)
    function('m.py(1): <module>', 100, 200)
    function('m.py(5): a b;c', 110, 100)
    t.operator('aten::mm', 120, 40, external=5).call(130, 1, dur=10).kernel('gemm', 150, 25, 1, 5)
    t.operator('aten::add', 170, 10, external=6)
    t.stage('ProfilerStep#2', 400, 100)
    function('m.py(1): <module>', 410, 80)
    t.operator('aten::add', 420, 30, external=7).call(425, 2, dur=5).kernel('add', 440, 50, 2, 7)
    t.add('python_function', 'alone', 420, 7, tid=9)
    return t


SMALL = {'m.py(1):_<module>;m.py(5):_a_b_c': 50, 'm.py(1):_<module>': 50 + 30}
ON_DEVICE = {'m.py(1):_<module>;m.py(5):_a_b_c': 25, 'm.py(1):_<module>': 50}


def test_self_times(analyze, tmp_path):
    """A Python function counts for its caller, as in torch: 100 - 50 of `a b;c`, whose own operators have 50."""
    path = small().write(tmp_path / 'a.json')
    assert lines_of(analyze('stacks', path, format=None).out) == SMALL
    for metric in ('self_device', 'self_cuda_time_total', 'self_device_time_total', 'self_xpu_time_total'):
        assert lines_of(analyze('stacks', '--metric', metric, path, format=None).out) == ON_DEVICE
    assert analyze('stacks', '--metric', 'self_cpu_time_total', path, format=None).out == analyze('stacks', path, format=None).out
    for metric in ('cuda_time_total', 'wall_time_total', 'self_cuda'):
        assert '--metric takes self_cpu|' in analyze('stacks', '--metric', metric, path, format=None, rc=2).err


def test_filters(analyze, tmp_path):
    paths = [small(rank).write(tmp_path / f'{rank}.json') for rank in range(2)]

    def lines(*words, **more):
        return lines_of(analyze('stacks', *words, *paths, format=None, **more).out)
    assert lines() == {stack: 2 * time for stack, time in SMALL.items()}
    assert lines('--rank', '1') == SMALL
    assert lines('--rank', '1', '--step', '2') == {'m.py(1):_<module>': 30}
    assert lines('--rank', '0', '--stage', 'ProfilerStep*', '--step', '1') == {'m.py(1):_<module>;m.py(5):_a_b_c': 50,
                                                                               'm.py(1):_<module>': 50}
    assert 'nothing matches --step 7' in analyze('stacks', '--step', '7', *paths, rc=1, format=None).err
    for words in (['--top', '1'], ['--metric', 'time'], ['--layout', 'rows'], ['--format', 'json'], ['--names', 'short']):
        analyze('stacks', *words, *paths, rc=2, format=None)


def test_no_stacks(analyze, tmp_path):
    t = kineto.Trace().operator('aten::add', 10, 5)
    result = analyze('stacks', t.write(tmp_path / 'a.json'), format=None)
    assert result.out == '' and 'no operator has a call stack; TFI_WITH_STACK=1' in result.err
    path = small().write(tmp_path / 'b.json')
    data = path.read_bytes()
    path.write_bytes(data[:data.index(b'ProfilerStep#2')])
    assert lines_of(analyze('stacks', path, rc=3, format=None).out)


def test_our_trace(analyze, tmp_path):
    """Native frames count only in a stack without Python frames; a backward operator has the stack of its forward one."""
    t = OpTrace()
    native = ('_ZN4mine3addIiEEvT_', '/v/libmine.so', 0)
    frames = [native, ('forward', '/p/m.py', 3), native, ('<module>', '/p/m.py', 9)]
    t.op('aten::mm', 100 * US, 150 * US, sequence=4, frames=frames)
    t.op('aten::add', 110 * US, 120 * US, frames=frames)
    t.work('kernel', 112 * US, 130 * US, 7 * US, name='k')
    t.op('MmBackward0', 200 * US, 230 * US, thread=2, sequence=4, forward=1, scope=1)
    t.op('aten::relu', 300 * US, 311 * US, frames=[native])
    path = t.save(tmp_path / 'rank2.h.1.tfr')
    assert lines_of(analyze('stacks', path, format=None).out) == {
        '/p/m.py(9):_<module>;/p/m.py(3):_forward': 50 - 2 + 30, 'libmine.so:_mine::add': 11}
    assert lines_of(analyze('stacks', '--metric', 'self_device', path, format=None).out) == {
        '/p/m.py(9):_<module>;/p/m.py(3):_forward': 7}


def test_no_control_characters(analyze, tmp_path):
    t = kineto.Trace().add('python_function', 'x\x1b[2J\u202e\ny', 0, 100).operator('aten::add', 10, 50)
    out = analyze('stacks', t.write(tmp_path / 'a.json'), format=None).out
    assert '\x1b' not in out and '\u202e' not in out and out.rsplit(' ', 1)[1] == '50\n'


# ---- device time of real traces ----

H100 = ['Falconsai_nsfw_image_detection__1016002', 'gaunernst_bert-small-uncased__1016001']


@pytest.mark.slow
@pytest.mark.parametrize('name', H100)
def test_device_time_of_real_traces(analyze, shared_traces, name):
    """Each kernel counts for the Python functions open around the operator with its external id."""
    path = shared_traces / 'tracelens' / 'h100' / f'{name}.json.gz'
    document = kineto.read(path)
    functions, operators, expected = defaultdict(list), {}, Counter()
    for e in document['traceEvents']:
        if e.get('ph') == 'X' and e.get('cat') in ('python_function', 'cpu_op'):
            start = kineto.nanoseconds(e['ts'])
            row = (start, start + kineto.nanoseconds(e['dur']), e['name'], e['tid'])
            if e['cat'] == 'cpu_op':
                operators[e['args'].get('External id')] = row
            else:
                functions[e['tid']].append(row)
    for e in document['traceEvents']:
        if e.get('cat') in ('kernel', 'gpu_memcpy', 'gpu_memset') and e['args'].get('External id') in operators:
            start, end, _, tid = operators[e['args']['External id']]
            around = sorted((f for f in functions[tid] if f[0] <= start and end <= f[1]), key=lambda f: (f[0], -f[1]))
            if around:
                expected[';'.join(f[2].translate(MARKS) for f in around)] += kineto.nanoseconds(e['dur'])
    assert len(expected) > 20
    found = lines_of(analyze('stacks', '--metric', 'self_device', path, format=None).out)
    assert found == {stack: time // 1000 for stack, time in expected.items() if time >= 1000}


# ---- speedscope ----

def speedscope(text):
    """{name of a profile: {stack: nanoseconds}}, after the checks of the format's description."""
    file = json.loads(text)
    assert file['$schema'] == 'https://www.speedscope.app/file-format-schema.json'
    assert set(file) <= {'$schema', 'shared', 'profiles', 'name', 'activeProfileIndex', 'exporter'}
    frames = file['shared']['frames']
    for frame in frames:
        assert set(frame) <= {'name', 'file', 'line', 'col'} and isinstance(frame['name'], str)
        assert isinstance(frame.get('file', ''), str) and type(frame.get('line', 0)) is int
    assert len({json.dumps(f) for f in frames}) == len(frames)
    found = {}
    for profile in file['profiles']:
        assert set(profile) == {'type', 'name', 'unit', 'startValue', 'endValue', 'samples', 'weights'}
        assert (profile['type'], profile['unit'], profile['startValue']) == ('sampled', 'nanoseconds', 0)
        assert len(profile['samples']) == len(profile['weights']) and sum(profile['weights']) == profile['endValue']
        assert all(type(n) is int and 0 <= n < len(frames) for stack in profile['samples'] for n in stack)
        stacks = [';'.join((f'{f["file"]}({f["line"]}): ' if 'file' in f else '') + f['name']
                           for f in (frames[n] for n in stack)) for stack in profile['samples']]
        assert len(set(stacks)) == len(stacks) and profile['name'] not in found
        found[profile['name']] = dict(zip(stacks, profile['weights']))
    return found


def test_speedscope(analyze, tmp_path):
    paths = [small(rank).write(tmp_path / f'{rank}.json') for rank in range(2)]
    found = speedscope(analyze('stacks', '--layout', 'speedscope', *paths, format=None).out)
    assert list(found.values()) == [{'m.py(1): <module>;m.py(5): a b;c': 50000, 'm.py(1): <module>': 80000}] * 2
    assert all(name.startswith(f'rank {rank}, ') and name.endswith('self_cpu') for rank, name in enumerate(found))
    analyze('stacks', '--layout', 'speedscope', '--metric', 'self_device', '--output', tmp_path / 'f.json', paths[0], format=None)
    [device] = speedscope((tmp_path / 'f.json').read_text()).values()
    assert device == {'m.py(1): <module>;m.py(5): a b;c': 25000, 'm.py(1): <module>': 50000}


def test_both_layouts_agree(analyze, shared_traces):
    path = shared_traces / 'tracelens' / 'h100' / f'{H100[1]}.json.gz'
    [profile] = speedscope(analyze('stacks', '--layout', 'speedscope', path, format=None).out).values()
    lines, expected = lines_of(analyze('stacks', path, format=None).out), Counter()
    for stack, time in profile.items():
        expected[stack.replace(' ', '_')] += time
    assert lines == {stack: time // 1000 for stack, time in expected.items() if time >= 1000}
