/* analysis_deflater.c - zlib inflates what a deflater makes of any blocks; libisal is used where it is installed. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/gzip/deflater.h"
#include "base/util.h"
#include "unit.h"

enum { MOST = 1 << 17, BLOCKS = 6, SIZE = MOST * BLOCKS, ROOM = MOST + MOST / 8 + DEFLATER_SPARE };

static uint8_t text[SIZE], packed[ROOM * BLOCKS], again[ROOM], plain[SIZE + 1];

/* Kinds: words, random bytes, one byte over and over, a text that repeats after the window, mixed. */
static void make_text(unsigned kind)
{
    static const char *const words[] = {"\"ph\": \"X\", ", "\"dur\": ", "aten::mm", "},\n{", "\"ts\": 17", "\\u00e9"};
    srand(kind);
    for (size_t i = 0; i < SIZE;) {
        const char *word = words[(size_t)rand() % ARRAY_SIZE(words)];
        bool is_random = kind % 5 == 1 || (kind % 5 == 4 && i >> 15 & 1);
        if (kind % 5 == 2) text[i++] = (uint8_t)kind;
        else if (kind % 5 == 3 && i > DEFLATER_WINDOW) text[i] = text[i - DEFLATER_WINDOW], i++;
        else if (is_random) text[i++] = (uint8_t)rand();
        else
            for (; *word && i < SIZE; word++) text[i++] = (uint8_t)*word;
    }
}

static struct deflater_block block_at(size_t from, size_t length, bool last, uint8_t *out)
{
    size_t before = MIN(from, (size_t)DEFLATER_WINDOW);
    return (struct deflater_block){text + from - before, before, text + from, length, last, out, ROOM};
}

/* Compresses the text in blocks of random lengths, the last one with nothing in it every other time. */
static size_t pack(struct deflater *deflater, struct deflater *other, size_t length, bool empty_end)
{
    size_t at = 0, done = 0;
    for (bool last = false; !last;) {
        size_t left = length - at, part = rand() % 3 ? MOST : 1 + (size_t)rand() % 5000;
        part = MIN(part, left);
        last = !left || (part == left && !empty_end);
        struct deflater_block block = block_at(at, part, last, packed + done);
        size_t bytes = deflater_run(deflater, &block);
        ck_assert_uint_gt(bytes, 0);
        block.out = again;
        struct deflater_block unlike = {
            .data = text + at / 2, .length = 1 + part / 2, .last = at & 1, .out = again, .room = ROOM};
        ck_assert_uint_gt(deflater_run(other, &unlike), 0);
        ck_assert_uint_eq(deflater_run(other, &block), bytes); /* whatever it compressed before */
        ck_assert_int_eq(memcmp(again, packed + done, bytes), 0);
        done += bytes;
        ck_assert_uint_lt(done, sizeof packed - ROOM);
        at += part;
    }
    return done;
}

START_TEST(libisal_is_used_where_it_is_installed)
{
    void *library = dlopen("libisal.so.2", RTLD_NOW);
    struct deflater *deflater = deflater_open();
    ck_assert_int_eq(deflater_is_isal(deflater), library != NULL);
    deflater_close(deflater);
}
END_TEST

START_TEST(zlib_gives_back_the_text)
{
    struct deflater *deflater = deflater_open(), *other = deflater_open();
    make_text((unsigned)_i);
    size_t length = _i < 5 ? (size_t)_i : (size_t)rand() % (SIZE / 2), bytes = pack(deflater, other, length, _i & 1);
    z_stream z = {.next_in = packed, .avail_in = (uInt)bytes, .next_out = plain, .avail_out = sizeof plain};
    ck_assert_int_eq(inflateInit2(&z, -MAX_WBITS), Z_OK);
    ck_assert_int_eq(inflate(&z, Z_FINISH), Z_STREAM_END);
    ck_assert_uint_eq(z.avail_in, 0);
    ck_assert_uint_eq(z.total_out, length);
    ck_assert_int_eq(memcmp(plain, text, length), 0);
    inflateEnd(&z);
    deflater_close(deflater);
    deflater_close(other);
}
END_TEST

/* The hash of libisal 2.30 takes in an address where no bytes precede a block: one short block in a hundred differs. */
START_TEST(the_address_of_a_deflater_does_not_matter)
{
    static const char names[] = "\x0f\0\0\0nccl:all_to_all\x0f\0\0\0nccl:all_reduce";
    enum { PLACES = 1000, STEP = 20000 };
    void *between[PLACES];
    size_t first = 0;
    for (int i = 0; i < PLACES; i++) {
        struct deflater *deflater = deflater_open();
        const struct deflater_block block = {.data = (const uint8_t *)names,
                                             .length = sizeof names - 1,
                                             .last = true,
                                             .out = i ? again : packed,
                                             .room = ROOM};
        size_t bytes = deflater_run(deflater, &block);
        if (!i) first = bytes;
        ck_assert_uint_eq(bytes, first);
        ck_assert_int_eq(memcmp(again, packed, i ? bytes : 0), 0);
        deflater_close(deflater);
        between[i] = malloc(STEP);
    }
    for (int i = 0; i < PLACES; i++) free(between[i]);
}
END_TEST

START_TEST(a_full_room_is_an_error)
{
    struct deflater *deflater = deflater_open();
    make_text(1);
    for (size_t room = 1; room < MOST; room += 1000) {
        struct deflater_block block = block_at(MOST, MOST, room & 1, packed);
        block.room = room;
        packed[room] = 0xee;
        ck_assert_uint_eq(deflater_run(deflater, &block), 0);
        ck_assert_uint_eq(packed[room], 0xee);
    }
    struct deflater_block block = block_at(MOST, MOST, true, packed);
    ck_assert_uint_gt(deflater_run(deflater, &block), 0);
    deflater_close(deflater);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("deflater");
    tcase_add_test(tcase, libisal_is_used_where_it_is_installed);
    tcase_add_loop_test(tcase, zlib_gives_back_the_text, 0, 80);
    tcase_add_test(tcase, the_address_of_a_deflater_does_not_matter);
    tcase_add_test(tcase, a_full_room_is_an_error);
    tcase_set_timeout(tcase, 60);
    return unit_run(tcase);
}
