/* analysis_occupancy.c - occupancy of kernels, against what Kineto wrote on real devices, and against cuda_occupancy.h.
 *
 * The rows are kernels of public traces of a V100 (80 multiprocessors), an A100 (108) and an H100 (132), and, of other
 * devices, results of cudaOccMaxActiveBlocksPerMultiprocessor of CUDA 12.8.
 */
#include "ask/device/occupancy.h"

#include <math.h>

#include "unit.h"

static const struct row {
    uint32_t capability;
    struct block_needs block;
    double blocks;
    double percent;
} rows[] = {
    {700, {512, 32, 0}, 28. / 80, 9},
    {700, {128, 86, 16384}, 240. / 80, 19},
    {700, {512, 22, 0}, 1280. / 80, 100},
    {700, {128, 18, 0}, 4. / 80, 0},
    {700, {64, 126, 8448}, 7.2f, 22},  /* 22.5 in full */
    {700, {256, 57, 16384}, 3.8f, 47}, /* 47.5 in full */
    {800, {128, 35, 0}, 1152. / 108, 67},
    {800, {128, 160, 16384}, 3025. / 108, 19},
    {800, {256, 47, 0}, 864. / 108, 63},
    {900, {128, 255, 49152}, 1280. / 132, 13},
    {900, {256, 32, 2112}, 6272. / 132, 100},
    {900, {128, 34, 24}, 788. / 132, 37},
    /* Kineto says 0 where a block has more than 48 KiB */
    {800, {128, 252, 67584}, 507. / 108, 13},
    {705, {1024, 32, 0}, 100, 100},
    {806, {1024, 40, 0}, 100, 67},
    {809, {32, 16, 0}, 100, 50},
    {1200, {64, 32, 20000}, 100, 17},
    {600, {404, 130, 2543}, 100, NAN}, /* has no registers for it on any Pascal */
    {900, {1024, 255, 0}, 100, NAN},
    {900, {128, 32, 300000}, 100, NAN},
    {9900, {128, 32, 0}, 100, NAN},
    {900, {0, 32, 0}, 100, NAN},
    {900, {128, 32, 0}, NAN, NAN},
    {900, {128, 32, 0}, 0, NAN},
};

START_TEST(occupancy)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double percent = occupancy_estimate(rows[i].capability, &rows[i].block, rows[i].blocks);
        if (isnan(rows[i].percent)) ck_assert_msg(isnan(percent), "row %zu: %f", i, percent);
        else ck_assert_msg(percent == rows[i].percent, "row %zu: %f", i, percent);
    }
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("occupancy");
    tcase_add_test(tcase, occupancy);
    return unit_run(tcase);
}
