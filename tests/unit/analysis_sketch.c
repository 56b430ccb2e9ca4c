/* analysis_sketch.c - buckets of sketches: ascending, without gaps, and their middle within 0.8 % of each value. */
#include "sketch.h"
#include "unit.h"

static void check_value(uint64_t value)
{
    uint32_t bucket = tfi_bucket_of(value);
    uint64_t middle = tfi_bucket_middle(bucket), away = middle > value ? middle - value : value - middle;
    ck_assert_uint_lt(bucket, TFI_BUCKETS);
    ck_assert_uint_eq(tfi_bucket_of(middle), bucket);
    ck_assert_uint_le(away, value / 128);
    if (value < 128) ck_assert_uint_eq(middle, value);
    if (value) ck_assert_uint_le(bucket - tfi_bucket_of(value - 1), 1);
}

START_TEST(test_every_small_value)
{
    for (uint64_t value = 0; value < 1u << 14; value++) check_value(value);
}
END_TEST

START_TEST(test_edges)
{
    for (unsigned bit = 7; bit < 64; bit++) {
        uint64_t power = (uint64_t)1 << bit;
        for (unsigned part = 0; part < 64; part++) {
            check_value(power + (power >> 6) * part);
            check_value(power + (power >> 6) * part + 1);
        }
    }
    check_value(UINT64_MAX);
    ck_assert_uint_eq(tfi_bucket_of(UINT64_MAX), TFI_BUCKETS - 1);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("sketch");
    tcase_add_test(tcase, test_every_small_value);
    tcase_add_test(tcase, test_edges);
    return unit_run(tcase);
}
