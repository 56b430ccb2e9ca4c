"""test_communication - which kernels communicate: by operator, annotation and description, by known names, by the user's."""

import pytest

from kineto import Trace

EXPERTS = ['void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*, float*)',
           'void dpsk::ep::internode::notify_dispatch<false, 4>(int const*)',
           'void dpsk::ep::internode::combine_ll<7168>(int4*)',
           'void uccl::internode_ll::dispatch<true, 7168>(void*)',
           'void deep_ep::intranode::combine<__nv_bfloat16, 8>()',
           'void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16, false>(mori::moe::EpDispatchCombineArgs<hip_bfloat16>)',
           'EpCombineInterNodeV1Kernel_bf16',
           'void a2a_dispatch_send_kernel<true, 16ul, 4ul, NotFixed>(unsigned long)',
           'void (anonymous namespace)::combineKernel<4u, true>(unsigned long)',
           'void hybrid_ep::dispatch_kernel<Cfg>(hybrid_ep::dispatch_kernel_param_t)',
           'void tensorrt_llm::kernels::mnnvl_throughput::moeA2ADispatchKernel<8>(int const*)',
           'void flashinfer::trtllm_alltoall::moeAllToAllKernel<false>(int)',
           'void flashinfer::trtllm_moe_allreduce_fusion::moefinalize_allreduce_fusion_kernel_oneshot_lamport<P>()',
           'void multimem_one_shot_reduce_kernel<c10::BFloat16, 16>()',
           'exchangeSplitAndOffset(long*, int, int)',
           'void bytedance::flux::a2a::post_attn_all_to_all_kernel<2>(Params)',
           'ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)',
           'void aiter::cross_device_reduce_2stage<__half, 8>()']
LOCAL = ['void cdpsk::ep::CUB_200700_900_NS::DeviceScanKernel<int>(int)',
         'void dpsk::gemm::fp8_gemm_kernel<128>(float)',
         'triton_poi_fused__to_copy_all_gather_into_tensor_wait_tensor_3',
         'void cutlass::device_kernel<bytedance::flux::GemmV2ReduceScatter_Kernel<int> >(Params)',
         'void oneflow::softmax<BlockAllReduce<float> >(int)',
         'moeA2ASanitizeExpertIdsKernel(int*)',
         'void cub::DispatchKernel<int>(int)',
         'void at::native::vectorized_elementwise_kernel<4, at::native::AllGatherFunctor>(int)']


def kinds(analyze, t, tmp_path, *more):
    rows = analyze('breakdown', t.write(tmp_path / 'trace.json'), *more, rc=None)['rows']
    return {row['name']: row['kind'] for row in rows}


def test_names_of_libraries(analyze, tmp_path):
    t = Trace()
    for i, name in enumerate(EXPERTS + LOCAL):
        t.call(10 * i, i + 1).kernel(name, 10 * i + 2, 5, i + 1)
    found = kinds(analyze, t, tmp_path)
    assert {name for name, kind in found.items() if kind == 'COMMUNICATION'} == set(EXPERTS)
    assert set(found) == set(EXPERTS + LOCAL)


def test_overlap_of_experts(analyze, tmp_path):
    """Two microbatches as DeepSeek trains them: tokens travel while the other batch computes."""
    t = Trace()
    for i, (name, start, dur, stream) in enumerate([
            ('void dpsk::ep::internode::dispatch<false, 8, true, 8>(int4*)', 100, 60, 16),
            ('void dpsk::gemm::fp8_gemm_kernel<128>(float)', 120, 30, 7),
            ('void dpsk::ep::internode::combine<false>(int4*)', 200, 40, 16),
            ('void dpsk::gemm::fp8_gemm_kernel<128>(float)', 230, 50, 7)]):
        t.call(10 * i, i + 1).kernel(name, start, dur, i + 1, stream=stream)
    path = t.write(tmp_path / 'trace.json')
    row, = analyze('overlap', path)['rows']
    assert (row['communication_us'], row['overlap_us'], row['overlap_pct']) == (100, 40, 40)
    row, = analyze('timeline', path)['rows']
    assert (row['computation_us'], row['exposed_communication_us']) == (80, 60)


def job(kernel, annotation, ranks=2, late=500, **kernel_args):
    traces = []
    for rank in range(ranks):
        t = Trace(pid=10 + rank, distributedInfo={'rank': rank, 'world_size': ranks},
                  baseTimeNanoseconds=1_688_296_932_000_000_000)
        start = 1000 + (late if rank == ranks - 1 else 0)
        t.stage(annotation, start, 40, args={'Input Dims': [[6144]], 'Input type': ['float']})
        t.call(start + 10, 7).kernel(kernel, start + 20, 1000 + late - start + 30, 7, **kernel_args)
        traces.append(t)
    return traces


@pytest.mark.parametrize('annotation, name', [('nccl:all_to_all', 'all_to_all'), ('nccl:_all_gather_base', 'all_gather')])
def test_an_annotation_says_what_a_kernel_does(analyze, tmp_path, annotation, name):
    """NCCL's all_to_all is a kernel named SendRecv: the annotation round its launch tells, and so a late rank is found."""
    kernel = 'ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)'
    files = [t.write(tmp_path / f'rank{i}.json') for i, t in enumerate(job(kernel, annotation))]
    row, = analyze('comm', *files)['rows']
    assert (row['name'], row['ranks'], row['start_skew_us'], row['last_rank']) == (name, 2, 500, 1)
    assert row['bytes'] == (6144 * 4 if name == 'all_to_all' else None)  # of an all_gather the output counts, which is not there
    row, = analyze('stragglers', *files)['rows']
    assert (row['rank'], row['late_us']) == (1, 500)
    (tmp_path / 'outside').mkdir()
    for i, t in enumerate(job(kernel, annotation)):
        t.events[1]['tid'] = 999  # the launch is on another thread: only the kernel's name is left
        files[i] = t.write(tmp_path / 'outside' / f'rank{i}.json')
    assert {row['name'] for row in analyze('comm', *files)['rows']} == {'sendrecv'}


@pytest.mark.parametrize('operator, communicates', [('symm_mem::all_to_all_vdev', True), ('record_param_comms', True),
                                                    ('vllm::all_reduce', True), ('vllm::unified_attention', False),
                                                    ('aten::copy_', False)])
def test_the_operator_of_a_kernel(analyze, tmp_path, operator, communicates):
    t = Trace()
    t.kernel('mystery', 30, 20, 7, 3).operator(operator, 10, 30, external=3).call(15, 7)
    t.kernel('same_ids', 60, 20, 3, 3)  # old traces write the correlation id where they know no operator
    found = kinds(analyze, t, tmp_path)
    assert found == {'mystery': 'COMMUNICATION' if communicates else 'COMPUTATION', 'same_ids': 'COMPUTATION'}
    names = [row['name'] for row in analyze('comm', tmp_path / 'trace.json')['rows']]
    assert names == ([{'symm_mem::all_to_all_vdev': 'all_to_all', 'vllm::all_reduce': 'all_reduce'}.get(operator, 'mystery')]
                     if communicates else [])


@pytest.mark.parametrize('globs', ['my::exchange*', 'other,my::exchange', '*exchange<4>(int)', ' my::* '])
def test_names_of_the_user(analyze, tmp_path, globs):
    """They match the whole name, or the short one, in every question and by every definition."""
    t = Trace()
    t.call(0, 1).kernel('void my::exchange<4>(int)', 10, 20, 1).call(5, 2).kernel('gemm', 20, 20, 2, stream=9)
    path = t.write(tmp_path / 'trace.json')
    assert kinds(analyze, t, tmp_path)['void my::exchange<4>(int)'] == 'COMPUTATION'
    assert kinds(analyze, t, tmp_path, '--communication', globs) == {'void my::exchange<4>(int)': 'COMMUNICATION',
                                                                    'gemm': 'COMPUTATION'}
    for rules in 'exact', 'tracelens', 'hta':
        row, = analyze('timeline', path, '--communication', globs, '--rules', rules)['rows']
        if rules != 'hta':
            assert (row['communication_us'], row['exposed_communication_us']) == (20, 10)
        else:
            assert (row['compute_us'], row['non_compute_us']) == (20, 10)
    row, = analyze('overlap', path, '--communication', globs)['rows']
    assert row['overlap_pct'] == 50
    rows = analyze('comm', path, '--communication', globs, rc=None)['rows']
    assert len(rows) == 1
