"""test_diff_tree - `diff --by tree`: what was changed in a program is one row at its lowest place, and noise is none.

A program is a tree of stages and operators with own times; its calls are laid out in a trace of PyTorch or of ours.
"""

import random

import pytest

import kineto
from optrace import OpTrace
from test_device_records import US

STEPS = 8
NAMES = 'name', 'kind', 'calls_a', 'calls_b', 'state', 'what'


def program():
    """{stage: [operator, ...]}; an operator is [name, own time in us, operators inside it]."""
    return {
        'encode': [['aten::linear', 20, [['aten::t', 6, []], ['aten::addmm', 300, []]]], ['aten::relu', 60, []]],
        'attend': [['aten::matmul', 10, [['aten::bmm', 200, []]]], ['aten::softmax', 90, []], ['aten::dropout', 40, []]],
        'decode': [['aten::conv2d', 15, [['aten::convolution', 9, [['aten::_convolution', 400, []]]]]], ['aten::add', 70, []]],
    }


class OfPytorch(kineto.Trace):
    def place(self, name, start, time, is_stage):
        (self.stage if is_stage else self.operator)(name, start, time)

    def end(self, path):
        return self.write(path.with_suffix('.json'))


class Ours(OpTrace):
    def place(self, name, start, time, is_stage):
        begin, end = 100 * US + round(start * US), 100 * US + round((start + time) * US)
        self.stage(name, begin, end) if is_stage else self.op(name, begin, end)

    def end(self, path):
        return self.save(path.with_name(f'rank0.{path.name}.1.tfr'))


def write(path, stages, noise=.03, seed=1, kind=OfPytorch):
    """Eight steps of the program, each call with noise of its own; its trace."""
    rng, t, at = random.Random(seed), kind(), 0

    def length_of(operators):
        return sum(own + length_of(inside) for _, own, inside in operators)

    def draw(operators):
        return [[name, round(own * (1 + rng.gauss(0, noise)), 3), draw(inside)] for name, own, inside in operators]

    def put(operators, at):
        for name, own, inside in operators:
            t.place(name, at, own + length_of(inside), False)
            put(inside, at + own / 2)
            at += own + length_of(inside)

    for _ in range(STEPS):
        for stage, operators in stages.items():
            drawn = draw(operators)
            t.place(stage, at, length_of(drawn) + 30, True)
            put(drawn, at + 10)
            at += length_of(drawn) + 50
    return t.end(path)


def changed(analyze, tmp_path, change, kind=OfPytorch, **more):
    """The rows of the program and of the changed one."""
    stages = program()
    a = write(tmp_path / 'a', stages, kind=kind)
    change(stages)
    b = write(tmp_path / 'b', stages, seed=2, kind=kind, **more)
    return [tuple(row[key] for key in NAMES) for row in analyze('diff', a, b, '--by', 'tree')['rows']]


def slower(operators, factor):
    for operator in operators:
        operator[1] *= factor
        slower(operator[2], factor)


@pytest.mark.parametrize('kind', [OfPytorch, Ours])
def test_noise_is_no_row(analyze, tmp_path, kind):
    """Also of a machine that was a fifth slower."""
    a = write(tmp_path / 'a', program(), kind=kind)
    for seed, factor, noise in ((2, 1, .03), (3, 1, .15), (4, 1.2, .03)):
        stages = program()
        for operators in stages.values():
            slower(operators, factor)
        b = write(tmp_path / f'b{seed}', stages, noise, seed, kind)
        answer = analyze('diff', a, b, '--by', 'tree')
        assert answer['rows'] == [] and answer['totals']['total_b_us'] > answer['totals']['total_a_us'] * (factor - .1)
        assert 'nothing but noise: both runs have the same stages, operators and device work at the same places, and no time of the host' in analyze('diff', a, b, '--by', 'tree', format='text').err


@pytest.mark.parametrize('kind', [OfPytorch, Ours])
def test_a_slower_operator(analyze, tmp_path, kind):
    """Neither what calls it nor what stands beside it."""
    rows = changed(analyze, tmp_path, lambda p: slower(p['decode'][0][2][0][2], 2), kind)
    assert rows == [('decode > aten::conv2d > aten::convolution > aten::_convolution', 'operator', STEPS, STEPS, 'increased', None)]


def test_a_faster_stage_is_one_row(analyze, tmp_path):
    rows = changed(analyze, tmp_path, lambda p: slower(p['attend'], .5))
    assert rows == [('attend', 'stage', STEPS, STEPS, 'decreased', None)]


@pytest.mark.parametrize('kind', [OfPytorch, Ours])
def test_what_was_replaced(analyze, tmp_path, kind):
    """The place that lost some operators and gained another one."""
    def fuse(p):
        p['attend'] = [['aten::scaled_dot_product_attention', 100, [['aten::_flash_attention', 50, []]]]]
    stages = program()
    rows = changed(analyze, tmp_path, fuse, kind)
    assert rows == [('attend', 'stage', STEPS, STEPS, 'decreased', 'aten::matmul, aten::softmax, aten::dropout -> aten::scaled_dot_product_attention')]
    assert [operator[0] for operator in stages['attend']] == ['aten::matmul', 'aten::softmax', 'aten::dropout']


def test_what_was_added_or_removed_or_is_called_more(analyze, tmp_path):
    rows = changed(analyze, tmp_path, lambda p: p['encode'].append(['aten::clone', 5, []]))
    assert rows == [('encode > aten::clone', 'operator', 0, STEPS, 'added', None)]
    rows = changed(analyze, tmp_path, lambda p: p.pop('attend'))
    assert rows == [('attend', 'stage', STEPS, 0, 'removed', None)]
    rows = changed(analyze, tmp_path, lambda p: p['encode'].append(p['encode'][1]))
    assert rows == [('encode > aten::relu', 'operator', STEPS, 2 * STEPS, 'increased', None)]
    rows = changed(analyze, tmp_path, lambda p: p['encode'].extend([['aten::clone', 5, []], ['aten::to', 5, [['aten::_to_copy', 9, []]]]]))
    assert rows == [('encode', 'stage', STEPS, STEPS, 'increased', 'added: aten::clone, aten::to')]


def test_two_changes_are_two_rows(analyze, tmp_path):
    """The larger one first; its times are those of what was replaced."""
    def both(p):
        slower([p['decode'][1]], 2)
        p['encode'][0][0] = 'aten::fused_linear'
    rows = changed(analyze, tmp_path, both)
    assert [row[0] for row in rows] == ['decode > aten::add', 'encode']
    assert rows[1][4:] == ('same', 'aten::linear -> aten::fused_linear')


PLANTED = {
    'test01_moe_fused_vs_unfused': ('ProfilerStep* > moe_layer', 'decreased', 'aiter::moe_sorting_fwd, aiter::ck_moe_stage1, aiter::ck_moe_stage2, aiter::moe_sum -> triton::fused_moe_kernel'),
    'test03_attention_fused_vs_unfused': ('ProfilerStep* > attention', 'increased', 'aiter::_flash_attn_forward -> aten::bmm, aten::softmax'),
}


@pytest.mark.parametrize('name', PLANTED)
def test_planted_pairs(analyze, shared_traces, name):
    row, = analyze('diff', *sorted((shared_traces / 'planted' / name).iterdir()), '--by', 'tree')['rows']
    assert (row['name'], row['state'], row['what']) == PLANTED[name]


def test_the_kernels_of_another_device(analyze, shared_traces):
    """They take as long, and the operator that launches them is the place."""
    row, = analyze('diff', *sorted((shared_traces / 'planted/test05_gemm_identical_runtime_roofline').iterdir()), '--by', 'tree')['rows']
    assert row['name'].endswith('> aten::mm') and row['state'] == 'same' and ' -> sm90_xmma_gemm' in row['what']


def test_a_slower_kernel(analyze, tmp_path):
    """With device work the times are those of the device: its operator took as long on the host."""
    def kernels(path, seed, gemm):
        rng, t = random.Random(seed), kineto.Trace()
        for i in range(STEPS):
            at = 1000 * i
            t.stage('step', at, 900).operator('aten::mm', at + 10, 100).operator('aten::relu', at + 200, 100 + 50 * seed)
            t.call(at + 20, 2 * i + 1).kernel('gemm', at + 30, round(gemm * (1 + rng.gauss(0, .01)), 3), 2 * i + 1)
            t.call(at + 210, 2 * i + 2).kernel('relu', at + 500, round(50 * (1 + rng.gauss(0, .01)), 3), 2 * i + 2)
        return t.write(path)
    files = [kernels(tmp_path / f'{i}.json', i, (100, 100, 130)[i]) for i in range(3)]
    assert analyze('diff', *files[:2], '--by', 'tree')['rows'] == []
    assert 'no time of devices differs' in analyze('diff', *files[:2], '--by', 'tree', format='text').err
    row, = analyze('diff', *files[1:], '--by', 'tree')['rows']
    assert (row['name'], row['kind'], row['state']) == ('step > aten::mm > gemm', 'COMPUTATION', 'increased')
    assert row['change_pct'] == pytest.approx(30, abs=3)


def device_steps(path, blocks=4, mallocs=1, waits=3, slow=1):
    """Steps with a kernel of so many blocks per SM, and calls that allocate or wait."""
    t = kineto.Trace()
    for i in range(STEPS):
        at, number = 10000 * i, 100 * i
        t.stage('step', at, 9000).call(at + 20, number + 1).kernel('gemm', at + 30, 100 * slow + i % 3, number + 1)
        t.events[-1]['args']['blocks per SM'] = blocks
        for k in range(mallocs):
            t.call(at + 200 + 20 * k, number + 10 + k, name='cudaMalloc', dur=9)
        for k in range(waits):
            t.call(at + 4000 + 20 * k, number + 50 + k, name='cudaStreamSynchronize', dur=.01)
    return t.write(path)


@pytest.mark.parametrize('change, row', [
    ({}, None), ({'waits': 40}, None), ({'blocks': 1}, ('step > gemm', 'COMPUTATION', STEPS, STEPS, 'same', 'blocks per SM: 4 -> 1')),
    ({'mallocs': 20}, ('step > cudaMalloc', 'call', STEPS, 20 * STEPS, 'increased', None)), ({'mallocs': 0}, ('step > cudaMalloc', 'call', STEPS, 0, 'removed', None)),
    ({'blocks': 2, 'slow': 2}, ('step > gemm', 'COMPUTATION', STEPS, STEPS, 'increased', 'blocks per SM: 4 -> 2')),
])
def test_what_is_measured_beside_times(analyze, tmp_path, change, row):
    """Grids and calls have a place, and with a slower kernel they are one row; few calls, and calls of no time, are none."""
    a, b = device_steps(tmp_path / 'a.json'), device_steps(tmp_path / 'b.json', **change)
    assert [tuple(row[key] for key in NAMES) for row in analyze('diff', a, b, '--by', 'tree')['rows']] == ([row] if row else [])


def test_wrong_usage(analyze, tmp_path):
    (tmp_path / 't.json').write_text('{"total_stages_ms": 1, "stages": {}}')
    a = write(tmp_path / 'a', program())
    for words, said in (([a, 't.json'], 'has no meaning for a timing.json'), ([a, a, '--gate', '5', '--', a], 'compares one run of each side')):
        assert said in analyze('diff', '--by', 'tree', *words, rc=2, format=None).err
    assert 'nothing matches --stage x' in analyze('diff', a, a, '--by', 'tree', '--stage', 'x', rc=1, format=None).err
