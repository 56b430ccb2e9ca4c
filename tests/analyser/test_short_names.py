"""test_short_names - `--names short`: the kernel names of one answer keep just what tells them apart.

The real traces have the kernel names of torch, cuDNN, CUTLASS and ROCm.
"""

import re

import pytest

import kineto
from conftest import TRACES
from test_kineto import FILES, exact

ADD = 'void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::CUDAFunctor_add<{}> >' \
      '(at::TensorIteratorBase&, at::native::CUDAFunctor_add<{}> const&)::{{lambda(int)#1}}>(int, at::native::X)'
GELU = 'void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::{{lambda()#2}}' \
       '::operator()() const::{{lambda({})#1}}, std::array<char*, 2ul> >(int)'
VECTOR = 'void at::native::vectorized_elementwise_kernel<4, {}, std::array<char*, 3ul> >(int, {}, std::array<char*, 3ul>)'

TOGETHER = [
    # One argument tells the kernels apart; a function in it keeps only its own name, without the namespace.
    ({VECTOR.format('at::native::CUDAFunctor_add<float>', 'F'): 'at::native::vectorized_elementwise_kernel<…CUDAFunctor_add…>',
      VECTOR.format('at::native::BUnaryFunctor<float, at::native::MulFunctor<float> >', 'F'):
          'at::native::vectorized_elementwise_kernel<…BUnaryFunctor…>',
      GELU.format('float').replace('{{', '{').replace('}}', '}'):
          'at::native::vectorized_elementwise_kernel<…GeluCUDAKernelImpl…>',
      'void at::native::other<4, float>(int)': 'at::native::other'}, 'functors'),
    # The names differ deep inside.
    ({ADD.format('float', 'float'): 'at::native::elementwise_kernel<…gpu_kernel_impl<CUDAFunctor_add<float>>>',
      ADD.format('double', 'double'): 'at::native::elementwise_kernel<…gpu_kernel_impl<CUDAFunctor_add<double>>>'}, 'types'),
    # Numbers, if nothing else differs; two numbers, if one is not enough.
    ({'void conv<float, 1024, 5, true>(int)': 'conv<…1024, 5…>', 'void conv<float, 1024, 6, true>(int)': 'conv<…1024, 6…>',
      'void conv<float, 128, 6, true>(int)': 'conv<…128, 6…>'}, 'numbers'),
    # Functions with the same name and other parameters.
    ({'fill(int*, int)': 'fill(int*…)', 'fill(float*, int)': 'fill(float*…)'}, 'parameters'),
    # Classes with the same name that differ only in the namespace.
    ({'void run<a::F>(int)': 'run<a::F>', 'void run<b::F>(int)': 'run<b::F>', 'void run<G>(int)': 'run<G>'}, 'namespaces'),
    # A name that equals another name's short form.
    ({'f<int>(int)': 'f<int>', 'f': 'f'}, 'taken'),
    # The compiler appends `[clone .a]` to the name.
    ({'f(int) [clone .a]': 'f [clone .a]', 'f(int) [clone .b]': 'f [clone .b]'}, 'clones'),
]


def names_of(analyze, path, style):
    return [r['name'] for r in exact(analyze, 'breakdown', '--names', style, path)['rows']]


@pytest.mark.parametrize('names', [pytest.param(n, id=i) for n, i in TOGETHER])
def test_arguments_that_tell_kernels_apart(tmp_path, analyze, names):
    t = kineto.Trace().stage('s', 0, 10 ** 6)
    for i, name in enumerate(names):
        t.launch(name, 10 + 100 * i, i, dur=len(names) - i)
    path = t.write(tmp_path / 'in.json')
    assert names_of(analyze, path, 'short') == list(names.values())
    assert names_of(analyze, path, 'full') == list(names)


def test_a_kernel_alone_needs_no_arguments(tmp_path, analyze):
    path = kineto.Trace().stage('s', 0, 100).launch(ADD.format('float', 'float'), 10, 1).write(tmp_path / 'in.json')
    assert names_of(analyze, path, 'short') == ['at::native::elementwise_kernel']


@pytest.mark.parametrize('name', FILES or [None])
def test_short_names_of_real_traces_are_distinct(analyze, shared_traces, name):
    """Short names are as many as kernels, and equal in every run and with --top; most fit on a line."""
    def pairs(*arguments):
        both = [names_of(analyze, TRACES / name, style) for style in ('full', 'short')]
        return dict(zip(*both))
    shown = pairs()
    assert len(set(shown.values())) == len(shown) and pairs() == shown
    for full, short in shown.items():
        assert len(short) <= len(full) and (len(short) < 170 or short == full), short
    top = [r['name'] for r in exact(analyze, 'breakdown', '--names', 'short', '--top', 3, TRACES / name)['rows']]
    assert set(top) <= set(shown.values())


def test_the_screen_of_a_report_does_not_merge_kernels(tmp_path, analyze):
    t = kineto.Trace().stage('s', 0, 10 ** 6)
    t.launch(VECTOR.format('at::native::CUDAFunctor_add<float>', 'F'), 10, 1, dur=60)
    t.launch(VECTOR.format('at::native::FillFunctor<float>', 'F'), 110, 2, dur=40)
    text = analyze('report', t.write(tmp_path / 'in.json'), '--output', tmp_path / 'out', format='text').out
    rows = re.findall(r'^ +1 +([\d.]+) us +([\d.]+) % +at::native::vectorized_elementwise_kernel<…(\w+)…>$', text, re.M)
    assert rows == [('60.000', '60.0', 'CUDAFunctor_add'), ('40.000', '40.0', 'FillFunctor')]


MANGLED = '_ZN3foo3barIfEEvT_'
DEMANGLED = 'void foo::bar<float>(float)'


def test_mangled_names_of_other_profilers_are_demangled(tmp_path, analyze):
    """Mangled names are demangled, except with --names mangled, in HTA's answer and in dump."""
    path = kineto.Trace().stage('s', 0, 100).launch(MANGLED, 10, 1, dur=11).launch('_Znonsense', 40, 2).write(tmp_path / 'in.json')
    assert names_of(analyze, path, 'full') == [DEMANGLED, '_Znonsense']
    assert names_of(analyze, path, 'short') == ['foo::bar', '_Znonsense']
    assert names_of(analyze, path, 'mangled') == [MANGLED, '_Znonsense']
    assert [r['name'] for r in analyze('breakdown', '--rules', 'hta', path)['rows']] == [MANGLED, '_Znonsense']
    dumped = [r['values']['name'] for r in analyze('dump', path)['rows']]
    assert MANGLED in dumped and DEMANGLED not in dumped


def test_mangled_names_too_long_for_the_runtime_are_short(tmp_path, analyze):
    """A mangled name of more than 1024 bytes, which the C++ runtime refuses, is shortened to the words in it."""
    long = '_ZN3foo3barI' + 'Li{}E' + ''.join(f'NS_5Arr{i:02}E' for i in range(200)) + 'EEvT_'
    t = kineto.Trace().stage('s', 0, 10 ** 6)
    for i in range(3):
        t.launch(long.format(i), 10 + 100 * i, i, dur=10 - i)
    path = t.write(tmp_path / 'in.json')
    assert names_of(analyze, path, 'short') == [f'foo::bar<{i}…>' for i in range(3)]
    assert names_of(analyze, path, 'full') == [long.format(i) for i in range(3)]
