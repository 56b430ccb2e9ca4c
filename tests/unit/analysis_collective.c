/* analysis_collective.c - names of collectives and kernels, sizes of elements, and entries that are joined. */
#include <string.h>

#include "model/collective.h"
#include "model/communication.h"
#include "unit.h"

static const char *op_name(const char *name)
{
    return collective_kinds[collective_op_of(name, strlen(name))].name;
}

START_TEST(names_say_the_operation)
{
    static const char *const rows[][2] = {
        {"allreduce", "all_reduce"},
        {"allreduce_coalesced", "all_reduce"},
        {"_allgather_base", "all_gather"},
        {"all_gather_into_tensor_coalesced", "all_gather"},
        {"_reduce_scatter_base", "reduce_scatter"},
        {"all_to_allv", "all_to_all"},
        {"_broadcast_oop", "broadcast"},
        {"_reduce_oop", "reduce"},
        {"gather", "gather"},
        {"scatter", "scatter"},
        {"send", "send"},
        {"recv", "recv"},
        {"monitored_barrier", "barrier"},
        {"wait", "other"},
        {"init", "other"},
        {"", "other"},
        {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"},
        {"ncclKernel_ReduceScatter_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "reduce_scatter"},
        {"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "sendrecv"},
        {"ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce"},
        {"ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "broadcast"},
        {"ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "other"},
        {"void vllm::cross_device_reduce_1stage<c10::BFloat16, 8>(...)", "all_reduce"},
        {"void two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16>()", "all_reduce"},
        {"void multimem_all_gather_kernel<16>()", "all_gather"},
        {"void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()", "all_reduce"},
        {"hcclAllReduceKernel", "all_reduce"},
        {"hcom_allReduce__428_0_1", "all_reduce"},
        {"hcom_batchSendRecv__002_3_1", "sendrecv"},
        {"oneccl_reduce_scatter_large", "reduce_scatter"},
        {"oneccl_allreduce_pcie", "all_reduce"},
        {"quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half, CodecQ4<__half, 4>, true>, __half>",
         "all_reduce"},
        {"void lowPrecisionTwoShotAllReduceKernel<__nv_bfloat16, 8, true>()", "all_reduce"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) ck_assert_str_eq(op_name(rows[i][0]), rows[i][1]);
}
END_TEST

START_TEST(some_kernels_communicate)
{
    static const struct {
        const char *name;
        bool exact, tracelens;
    } rows[] = {
        {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL", true, true},
        {"void RcclKernel_AllGather()", true, true},
        {"void vllm::cross_device_reduce_2stage<float, 4>()", true, true},
        {"void deep_ep::intranode::combine<8>()", true, false},
        {"hcom_allReduce__428_0_1", true, false},
        {"void aiter::reduce_scatter_cross_device_store<__bf16, 8>()", true, false},
        {"oneccl_allreduce_pcie", true, false},
        {"void allreduce_prototype_twoshot<AllReduceTwoshot<__half>, __half>()", true, false},
        {"void tensorrt_llm::kernels::oneShotAllReduceKernel<float, 8, true>()", true, false},
        {"void lowPrecisionTwoShotAllReduceKernel<__nv_bfloat16, 8, true>()", true, false},
        {"void tensorrt_llm::kernels::mnnvl::twoshot_allreduce_kernel<8, __nv_bfloat16>()", true, false},
        {"void flashinfer::trtllm_mnnvl_allreduce::twoshotAllreduceKernel<4, __nv_bfloat16, true>()", true, false},
        {"void moefinalize_allreduce_fusion_kernel_oneshot_lamport<__nv_bfloat16, 8>()", true, false},
        {"void at::native::aminmax_allreduce_launch_kernel()", false, false},
        {"ccl", false, false},
        {"hccl", true, false},
        {"void reduce_kernel<512, 1, WarpAllReduce>()", false, false},
        {"", false, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert_int_eq(is_communication(rows[i].name, strlen(rows[i].name), false), rows[i].exact);
        ck_assert_int_eq(is_communication(rows[i].name, strlen(rows[i].name), true), rows[i].tracelens);
    }
    ck_assert(!is_communication("ncclKernel", 3, false));
}
END_TEST

START_TEST(elements_have_bytes)
{
    struct collectives c = {0};
    struct collective *one = collectives_add(&c);
    ck_assert_uint_eq(collective_type_bytes("BFloat16", false), 2);
    ck_assert_uint_eq(collective_type_bytes("Char", false), 1);
    ck_assert_uint_eq(collective_type_bytes("Char", true), 0);
    ck_assert_uint_eq(collective_type_bytes("Complex", false), 0);
    one->elements_in = 10;
    collective_size(one, 0);
    ck_assert_uint_eq(one->bytes_in, UNKNOWN_COUNT);
    collective_size(one, 4);
    ck_assert_uint_eq(one->bytes_in, 40);
    ck_assert_uint_eq(one->bytes_out, UNKNOWN_COUNT);
    one->elements_out = UINT64_MAX / 2;
    collective_size(one, 4);
    ck_assert_uint_eq(one->bytes_out, UNKNOWN_COUNT);
    collectives_free(&c);
}
END_TEST

static void add_kernel(struct collectives *c, uint64_t link, uint32_t work, int64_t start, int64_t end)
{
    struct collective *one = collectives_add(c);
    one->link = link;
    one->work = work;
    one->start = start;
    one->end = end;
}

START_TEST(parts_with_the_same_link_are_one)
{
    struct collectives c = {0};
    add_kernel(&c, 7, 3, 100, 120);
    add_kernel(&c, NO_LINK, 4, 50, 60);
    add_kernel(&c, 7, 5, 90, 110);
    struct collective *call = collectives_add(&c);
    call->link = 7;
    call->op = COLLECTIVE_ALL_REDUCE;
    call->communicator = 9;
    call->bytes_in = 64;
    call->sequence = 0;
    call->call_start = 80;
    call->call_end = 85;
    collectives_move(&c, 1000);
    collectives_finish(&c);
    ck_assert_uint_eq(c.count, 2);
    const struct collective *one = &c.collective[0], *alone = &c.collective[1];
    ck_assert_int_eq(one->start, 1090);
    ck_assert_int_eq(one->end, 1120);
    ck_assert_int_eq(one->call_start, 1080);
    ck_assert_int_eq(one->call_end, 1085);
    ck_assert_int_eq(one->op, COLLECTIVE_ALL_REDUCE);
    ck_assert_uint_eq(one->communicator, 9);
    ck_assert_uint_eq(one->bytes_in, 64);
    ck_assert_int_eq(one->sequence, 0);
    ck_assert_uint_eq(one->work, 5);
    ck_assert_int_eq(alone->start, 1050);
    ck_assert_int_eq(alone->call_start, UNKNOWN_TIME);
    ck_assert_uint_eq(map_get(&c.of_work, 3), 0);
    ck_assert_uint_eq(map_get(&c.of_work, 5), 0);
    ck_assert_uint_eq(map_get(&c.of_work, 4), 1);
    collectives_free(&c);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("collective");
    tcase_add_test(tcase, names_say_the_operation);
    tcase_add_test(tcase, some_kernels_communicate);
    tcase_add_test(tcase, elements_have_bytes);
    tcase_add_test(tcase, parts_with_the_same_link_are_one);
    return unit_run(tcase);
}
