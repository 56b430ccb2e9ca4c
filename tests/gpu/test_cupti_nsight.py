"""test_cupti_nsight - the library's CUPTI client stays off in processes that nsys or ncu profile or will profile.

Neither tool is needed: the library recognises them by their variables and by the names of their libraries.
"""

import pytest

import scripted
import test_cupti
from conftest import built
from scripted import drops
from test_cupti import GPU, assert_equals_log, nr_ours, only_line

play = test_cupti.play


def assert_stays_off(got):
    """One message and no CUPTI call; calls are still recorded."""
    assert 'no device records: another profiler has the device' in only_line(got) and 'stages are still recorded' in only_line(got)
    assert got.out.endswith('ok\n') and nr_ours(got) == 0 and got.stats is None
    assert len(scripted.calls(got.trace)) > 30 and got.trace.complete and not drops(got.trace)


@pytest.mark.parametrize('variable, value', [
    ('CUDA_INJECTION64_PATH', '/opt/nvidia/nsight-systems/libToolsInjection64.so'),
    ('CUDA_INJECTION64_PATH', '/opt/some/tool.so'),
    ('NVTX_INJECTION64_PATH', '/opt/nvidia/nsight-systems/libToolsInjection64.so'),
    ('NVTX_INJECTION64_PATH', '/opt/nvidia/nsight-compute/libcuda-injection.so'),
    ('NSYS_PROFILING_SESSION_ID', '1234'),
    ('QUADD_INJECTION_PROXY', 'OSRT'),
    ('NV_NSIGHT_INJECTION_PORT_BASE', '49152'),
    ('NV_NSIGHT_INJECTION_TRANSPORT_TYPE', '1'),
])
def test_nsight_announced(play, variable, value):
    assert_stays_off(play('', {variable: value}, program='driver'))


@pytest.mark.parametrize('name', ['libToolsInjection64.so', 'libcuda-injection.so'])
def test_nsight_mapped(play, tmp_path, lib, name):
    (tmp_path / name).symlink_to(built(GPU / 'libcudart.so.13'))  # any library does
    assert_stays_off(play('', {'LD_PRELOAD': f'{lib}:{tmp_path / name}'}, program='driver'))


@pytest.mark.parametrize('variable', ['CUDA_INJECTION64_PATH', 'NVTX_INJECTION64_PATH'])
def test_our_own_injection_is_not_another_tool(play, lib, variable):
    got = play('', {variable: lib}, program='driver')
    assert_equals_log(got)
    assert nr_ours(got) > 10 and got.said == []


def test_another_nvtx_tool_is_no_other(play):
    got = play('', {'NVTX_INJECTION64_PATH': '/opt/some/tool.so'}, program='driver')
    assert_equals_log(got)
    assert nr_ours(got) > 10 and got.said == []
