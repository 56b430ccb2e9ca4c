"""test_roofline - `tfanalyze roofline` on traces with one weak operator each: its name, operations, bytes and bound.

The expected numbers come from the shapes by the formulas below, which share no code with the analyser.
"""

import gzip
import json

import pytest

import kineto
from conftest import ROOT, clean_environment, execute

MI300X = {'gbs': 5300e9, 'fp32': 163.4e12, 'fp16': 1307.4e12, 'tf32': 653.7e12}


def product(batch, rows, inner, columns, size):
    return 2 * batch * rows * inner * columns, size * batch * (rows * inner + inner * columns + rows * columns)


def convolution(n, c, h, w, k, r, s, out_h, out_w, size=4):
    return 2 * n * k * out_h * out_w * c * r * s, size * (n * c * h * w + k * c * r * s + n * k * out_h * out_w)


def attention(heads, length, size):
    return 4 * heads * length * length * size, 2 * 4 * heads * length * size


def moe(tokens, hidden, experts, up, inner, each):
    weights = hidden * up + hidden * inner
    return 2 * tokens * each * weights, 2 * (min(experts, tokens * each) * weights + 2 * tokens * hidden)


PLANTED = {  # file: (operator, calls, (operations, bytes) of a call, the units)
    'conv_01_large_spatial_small_ch': ('aten::convolution', 1, convolution(1, 3, 2048, 2048, 64, 7, 7, 1024, 1024), 'fp32'),
    'conv_03_asymmetric_kernel': ('aten::convolution', 1, convolution(2, 256, 56, 56, 512, 1, 7, 56, 56), 'fp32'),
    'conv_05_pointwise_1x1': ('aten::convolution', 1, convolution(16, 1024, 14, 14, 2048, 1, 1, 14, 14), 'fp32'),
    'conv_07_transposed': ('aten::convolution', 1, (2 * 4 * 512 * 8 * 8 * 256 * 4 * 4, 4 * (4 * 512 * 8 * 8 + 512 * 256 * 4 * 4 + 4 * 256 * 16 * 16)), 'fp32'),
    'gemm_01_compute_few_tiles': ('aten::mm', 10, product(1, 256, 131072, 512, 2), 'fp16'),
    'gemm_03_compute_misaligned': ('aten::mm', 10, product(1, 4097, 4097, 4097, 2), 'fp16'),
    'moe_01_many_experts_few_tokens': ('vllm::rocm_aiter_fused_moe', 1, moe(16, 4096, 64, 22016, 11008, 2), 'fp16'),
    'moe_03_top1_sparse': ('vllm::rocm_aiter_fused_moe', 1, moe(512, 7168, 16, 28672, 14336, 1), 'fp16'),
    'moe_05_large_capacity': ('vllm::rocm_aiter_fused_moe', 1, moe(4096, 8192, 8, 44032, 22016, 2), 'fp16'),
    'sdpa_01_long_seq_low_eff': ('aten::_flash_attention_forward', 10, attention(32, 32768, 128), 'fp16'),
    'sdpa_03_short_seq_overhead': ('aten::_flash_attention_forward', 10, attention(16 * 32, 128, 128), 'fp16'),
}


def ask(tfanalyze, *words):
    result = execute([tfanalyze, 'roofline', *words, '--format', 'json'], clean_environment(), ROOT)
    assert result.rc in (0, 3), result.err
    return json.loads(result.out), result.err


@pytest.mark.parametrize('name', PLANTED)
def test_the_weak_operator(tfanalyze, shared_traces, name):
    operator, calls, (flops, moved), units = PLANTED[name]
    path = shared_traces / f'planted/{name}.json.gz'
    answer, _ = ask(tfanalyze, path, '--gpu', 'MI300X')
    row = answer['rows'][0]
    compute, memory = flops / MI300X[units] * 1e6, moved / MI300X['gbs'] * 1e6
    assert (row['name'], row['calls']) == (operator, calls)
    assert row['flops'] == pytest.approx(calls * flops, rel=1e-4) and row['bytes'] == pytest.approx(calls * moved, rel=1e-4)
    assert row['bound'] == ('compute' if compute > memory else 'memory')
    assert row['headroom_us'] == pytest.approx(max(0, row['device_us'] - calls * max(compute, memory)), rel=1e-4, abs=0.002)
    assert answer['totals']['peaks'] == [{'device': 'MI300X', 'gbs': 5300, 'fp64_tflops': 163.4, 'fp32_tflops': 163.4, 'tf32_tflops': 653.7, 'fp16_tflops': 1307.4, 'fp8_tflops': 2614.9}]
    kernels = sum(k.end - k.start for k in kineto.tables(kineto.read(path))['kernel']) if 'sdpa_03' not in name else None
    assert kernels is None or answer['totals']['device_us'] == kernels / 1000


@pytest.mark.parametrize('pair, names', [('test01_moe_fused_vs_unfused', ({'aiter::ck_moe_stage1', 'aiter::ck_moe_stage2', 'aiter::moe_sorting_fwd', 'aiter::moe_sum'}, {'triton::fused_moe_kernel'})),
                                         ('test03_attention_fused_vs_unfused', ({'aiter::_flash_attn_forward'}, {'aten::bmm', 'aten::softmax'}))])
def test_pairs_differ_by_what_is_fused(tfanalyze, shared_traces, pair, names):
    for number, expected in enumerate(names, 1):
        answer, err = ask(tfanalyze, shared_traces / 'planted' / pair / f'trace{number}.json.gz')
        assert {row['name'] for row in answer['rows']} == expected
        assert 'bounds are unknown' not in err  # these traces name their devices


def test_an_unknown_device(tfanalyze, shared_traces):
    """A trace that names no device: what bounds is unknown, and a line says what to type."""
    path = shared_traces / 'planted/conv_03_asymmetric_kernel.json.gz'
    answer, err = ask(tfanalyze, path)
    assert {(row['bound'], row['headroom_us']) for row in answer['rows']} == {(None, None)} and '--gpu NAME' in err
    result = execute([tfanalyze, 'roofline', path, '--gpu', 'MI300Y'], clean_environment(), ROOT)
    assert result.rc == 2 and 'MI300X' in result.err


@pytest.mark.parametrize('name, known', [('aten::convolution', True), ('aten::convolution_', True), ('aten::conv2d', True), ('aten::convolution_backward', False), ('aten::conv_tbc', False),
                                         ('aten::exp', True), ('aten::exp_', True), ('aten::expand', False), ('aten::add', True), ('aten::addmv', False), ('aten::index_put', False)])
def test_a_model_belongs_to_its_operator(tfanalyze, shared_traces, tmp_path, name, known):
    """An operator whose name begins like another one's has no model."""
    trace = gzip.decompress((shared_traces / 'planted/conv_03_asymmetric_kernel.json.gz').read_bytes())
    assert b'"aten::convolution"' in trace
    path = tmp_path / 'trace.json'
    path.write_bytes(trace.replace(b'"aten::convolution"', f'"{name}"'.encode()))
    answer, _ = ask(tfanalyze, path)
    assert [row['flops'] is not None for row in answer['rows'] if row['name'] == name] == [known]


@pytest.mark.parametrize('device, peaks', [('NVIDIA L4', (300, 121)), ('NVIDIA L40S', (864, 362.05)), ('NVIDIA H200', (4800, 989.4)), ('Tesla V100-SXM2-16GB', (900, 125)), ('NVIDIA A100-SXM4-40GB', (1555, 312)), ('NVIDIA L40', None),
                                         ('NVIDIA GH200 480GB', None), ('NVIDIA GB200', None), ('NVIDIA RTX A1000', None), ('NVIDIA A100-SXM4-40GB MIG 1g.5gb', None),
                                         ('NVIDIA GeForce RTX 4090 D', None), ('NVIDIA GeForce RTX 4090 Laptop GPU', None)])
def test_a_device_of_nearly_the_same_name(tfanalyze, shared_traces, device, peaks):
    """No device gets the peaks of another one, or of the whole of which it is a part."""
    path = shared_traces / 'planted/gemm_01_compute_few_tiles.json.gz'
    result = execute([tfanalyze, 'roofline', path, '--gpu', device, '--format', 'json'], clean_environment(), ROOT)
    assert (result.rc == 2) == (peaks is None), result.err
    if peaks:
        row = json.loads(result.out)['rows'][0]
        flops, moved = product(1, 256, 131072, 512, 2)
        least = max(moved / peaks[0] / 1e3, flops / peaks[1] / 1e6)
        assert row['headroom_us'] == pytest.approx(row['device_us'] - 10 * least, rel=1e-3)


def test_types_tell_rows_apart(tfanalyze, shared_traces):
    """Each row has the types of its inputs, one for each shape, as the trace has them; rows of one name and shapes differ in them."""
    path = shared_traces / 'tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz'
    rows = json.loads(execute([tfanalyze, 'roofline', path, '--format', 'json'], clean_environment(), ROOT).out)['rows']
    events = json.loads(gzip.decompress(path.read_bytes()))['traceEvents']
    known = {(e['name'], json.dumps(e['args']['Input type'])) for e in events if e.get('cat') == 'cpu_op' and 'Input type' in e.get('args', {})}
    typed = [row for row in rows if row['types']]
    assert len(typed) > 20 and all((row['name'], json.dumps(json.loads(row['types']))) in known for row in typed)
    keys = [(row['stage'], row['rank'], row['name'], row['shapes'], row['types']) for row in rows]
    assert len(keys) == len(set(keys))
