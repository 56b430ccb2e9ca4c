/* analysis_crc.c - the CRC of both programs equals zlib's for every length, alignment and content. */
#include <zlib.h>

#include "crc.h"
#include "unit.h"

START_TEST(test_same_as_zlib)
{
    static unsigned char data[70000];
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof data; i++) {
        state = state * 1664525 + 1013904223;
        data[i] = (unsigned char)(state >> 24);
    }
    for (int large = 0; large < 2; large++) { /* small pieces are zlib's until a large one has asked the processor */
        for (size_t bytes = 0; bytes < 600; bytes++)
            for (size_t from = 0; from < 17; from++)
                ck_assert_uint_eq(tfi_crc(0, data + from, bytes), (uint32_t)crc32(0, data + from, (uInt)bytes));
        ck_assert_uint_eq(tfi_crc(0, data, sizeof data), (uint32_t)crc32(0, data, sizeof data));
    }
    for (size_t bytes = 65400; bytes < 65600; bytes++)
        ck_assert_uint_eq(tfi_crc(0, data + 3, bytes), (uint32_t)crc32(0, data + 3, (uInt)bytes));
    for (size_t i = 0; i < sizeof data; i++) data[i] = 0;
    ck_assert_uint_eq(tfi_crc(0, data, sizeof data), (uint32_t)crc32(0, data, sizeof data));
    ck_assert_uint_eq(tfi_crc(0, "123456789", 9), 0xcbf43926);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("crc");
    tcase_add_test(tcase, test_same_as_zlib);
    return unit_run(tcase);
}
