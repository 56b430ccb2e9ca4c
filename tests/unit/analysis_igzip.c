/* analysis_igzip.c - igzip gives the bytes that zlib gives, in pieces of any size, and finds the end of each stream. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "read/stream/igzip.h"
#include "unit.h"

enum { SIZE = 300000, ROOM = 400000, BEHIND = 12 };

static uint8_t text[SIZE], packed[ROOM], plain[SIZE + 1];

static void make_text(unsigned seed)
{
    static const char *const words[] = {"\"ph\": \"X\", ", "\"dur\": ", "aten::mm", "},\n{", "\"ts\": 17", "\\u00e9"};
    size_t at = 0;
    srand(seed);
    while (at < SIZE) {
        const char *word = words[(size_t)rand() % ARRAY_SIZE(words)];
        size_t length = MIN(strlen(word), SIZE - at);
        memcpy(text + at, word, length);
        at += length;
        if (at < SIZE && rand() % 3 == 0) text[at++] = (uint8_t)rand();
    }
}

/* Level 0 stores, 1 to 9 have tables of their own; the strategy Z_FIXED has the fixed ones. */
static size_t pack(int level, int strategy)
{
    z_stream z = {.next_in = text, .avail_in = SIZE, .next_out = packed, .avail_out = ROOM - BEHIND};
    ck_assert_int_eq(deflateInit2(&z, level, Z_DEFLATED, -MAX_WBITS, 8, strategy), Z_OK);
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t length = z.total_out;
    deflateEnd(&z);
    for (size_t i = 0; i < BEHIND; i++) packed[length + i] = (uint8_t)(i + 1);
    return length;
}

START_TEST(it_is_used_where_it_is_installed)
{
    void *library = dlopen("libisal.so.2", RTLD_NOW);
    struct igzip *igzip = igzip_open();
    ck_assert_int_eq(igzip != NULL, library != NULL);
    igzip_close(igzip);
}
END_TEST

START_TEST(it_gives_the_bytes_of_zlib)
{
    static const int strategies[] = {Z_DEFAULT_STRATEGY, Z_FIXED, Z_HUFFMAN_ONLY};
    struct igzip *igzip = igzip_open();
    if (!igzip) return;
    make_text((unsigned)_i);
    size_t length = pack(_i % 10, strategies[_i % 3]), spares = 0;
    unsigned char spare[8];
    igzip_begin(igzip);
    z_stream z = {.next_in = packed, .next_out = plain};
    int status = Z_OK;
    while (status == Z_OK || status == Z_BUF_ERROR) {
        size_t left = (size_t)(packed + length + BEHIND - z.next_in), room = (size_t)(plain + SIZE + 1 - z.next_out);
        z.avail_in = (uInt)MIN(left, 1 + (size_t)rand() % (_i % 2 ? 100 : 100000));
        z.avail_out = (uInt)MIN(room, 1 + (size_t)rand() % (_i % 4 < 2 ? 300 : 200000));
        status = igzip_inflate(igzip, &z, spare, &spares);
        ck_assert(left || status == Z_STREAM_END);
    }
    ck_assert_int_eq(status, Z_STREAM_END);
    ck_assert_uint_eq((size_t)(z.next_out - plain), SIZE);
    ck_assert_int_eq(memcmp(plain, text, SIZE), 0);
    ck_assert_uint_eq((size_t)(z.next_in - packed) - spares, length);
    ck_assert_int_eq(memcmp(spare, packed + length, spares), 0);
    igzip_close(igzip);
}
END_TEST

START_TEST(a_cut_stream_gives_the_bytes_before_the_cut)
{
    struct igzip *igzip = igzip_open();
    if (!igzip) return;
    make_text((unsigned)_i);
    size_t length = pack(6, Z_DEFAULT_STRATEGY), cut = length * (size_t)(_i + 1) / 22, spares;
    unsigned char spare[8];
    z_stream z = {.next_in = packed, .avail_in = (uInt)cut, .next_out = plain, .avail_out = SIZE + 1};
    igzip_begin(igzip);
    int status = igzip_inflate(igzip, &z, spare, &spares);
    ck_assert(status == Z_OK || status == Z_BUF_ERROR);
    size_t got = (size_t)(z.next_out - plain);
    ck_assert_int_eq(memcmp(plain, text, got), 0);
    status = igzip_inflate(igzip, &z, spare, &spares);
    ck_assert_int_eq(status, Z_BUF_ERROR);
    ck_assert_uint_eq((size_t)(z.next_out - plain), got);
    igzip_close(igzip);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("igzip");
    tcase_add_test(tcase, it_is_used_where_it_is_installed);
    tcase_add_loop_test(tcase, it_gives_the_bytes_of_zlib, 0, 60);
    tcase_add_loop_test(tcase, a_cut_stream_gives_the_bytes_before_the_cut, 0, 20);
    return unit_run(tcase);
}
