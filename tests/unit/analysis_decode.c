/* analysis_decode.c - rows, columns and their codecs, value by value, and invalid payloads. */
#include <string.h>

#include "base/util.h"
#include "read/decode.h"
#include "unit.h"

static struct schema schema;
static struct decoder decoder;
static struct text payload;

static void setup(void)
{
    static const char lines[] = "1 point key:uint32_t:UINT:PLAIN value:int64_t:INT:KEYED when:uint64_t:TICKS:DELTA "
                                "small:int32_t:INT:PLAIN pad:uint32_t:UINT:PLAIN list:uint64_t:UINT:LIST\n"
                                "2 other a:uint32_t:UINT:PLAIN\n";
    schema = (struct schema){0};
    decoder = (struct decoder){0};
    payload = (struct text){0};
    ck_assert_uint_eq(schema_parse(&schema, lines, sizeof lines - 1), 0);
}

static void teardown(void)
{
    schema_free(&schema);
    decoder_free(&decoder);
    text_free(&payload);
}

/* ---- building payloads ---- */

static void put(const void *bytes, size_t length)
{
    text_add(&payload, bytes, length);
}

static void put16(uint16_t value)
{
    put(&value, sizeof value);
}

static void put32(uint32_t value)
{
    put(&value, sizeof value);
}

static void put64(uint64_t value)
{
    put(&value, sizeof value);
}

static void put_row(uint32_t key, int64_t value, uint64_t when, int32_t small, unsigned list)
{
    put16(1);
    put16((uint16_t)(32 + 8 * list));
    put32(key);
    put64((uint64_t)value);
    put64(when);
    put32((uint32_t)small);
    put32(0);
    for (unsigned i = 0; i < list; i++) put64(i + 1);
}

/* Decodes one group of kind 1 with one column. */
static bool decode_column(uint16_t field, uint16_t codec, uint32_t count, const void *bytes, size_t length,
                          struct chunk *chunk)
{
    uint8_t order[] = {0, (uint8_t)count};
    payload.length = 0;
    put32(1);
    put32(sizeof order);
    put(order, sizeof order);
    put16(1);
    put16(1);
    put32(count);
    put32((uint32_t)(8 + length));
    put16(field);
    put16(codec);
    put32((uint32_t)length);
    put(bytes, length);
    return decode_columns(&decoder, &schema, (uint8_t *)payload.data, (uint32_t)payload.length, chunk);
}

/* ---- rows ---- */

START_TEST(rows)
{
    struct chunk chunk;
    const uint32_t *first;
    put_row(5, -7, 1000, -1, 0);
    put_row(6, INT64_MIN, UINT64_MAX, INT32_MIN, 3);
    put16(9);
    put16(8);
    put32(0);
    put_row(7, 3, 0, 2, 1);
    ck_assert(decode_rows(&decoder, &schema, (uint8_t *)payload.data, (uint32_t)payload.length, &chunk));
    ck_assert(chunk.records == 4 && chunk.groups == 2 && chunk.runs == 3 && chunk.bad_bytes == 0);
    struct group *group = &chunk.group[0];
    ck_assert(group->count == 3 && group->kind && !chunk.group[1].kind && chunk.group[1].number == 9);
    ck_assert_int_eq((int64_t)group_values(&decoder, group, 1)[1], INT64_MIN);
    ck_assert_int_eq((int64_t)group_values(&decoder, group, 3)[0], -1);
    ck_assert_int_eq((int64_t)group_values(&decoder, group, 3)[1], INT32_MIN);
    ck_assert_uint_eq(group_values(&decoder, group, 0)[2], 7);
    const uint64_t *list = group_list(&decoder, group, 5, &first);
    ck_assert(first[0] == 0 && first[1] == 0 && first[2] == 3 && first[3] == 4 && list[2] == 3);
    ck_assert_ptr_null(group_values(&decoder, group, 6));
    ck_assert_ptr_null(group_values(&decoder, group, -1));
    ck_assert_ptr_null(group_values(&decoder, group, 5)); /* the field is a list */
    ck_assert_ptr_null(group_values(&decoder, &chunk.group[1], 0));
}
END_TEST

START_TEST(rows_end_where_one_makes_no_sense)
{
    static const uint16_t sizes[] = {0, 2, 7, 12, 400, 0xfff8};
    struct chunk chunk;
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        payload.length = 0;
        put_row(5, 1, 1, 1, 0);
        put_row(5, 1, 1, 1, 0);
        memcpy(payload.data + 34, &sizes[i], 2);
        decode_rows(&decoder, &schema, (uint8_t *)payload.data, (uint32_t)payload.length, &chunk);
        ck_assert(chunk.records == 1 && chunk.bad_bytes == 32);
    }
    decode_rows(&decoder, &schema, (uint8_t *)payload.data, 0, &chunk);
    ck_assert(chunk.records == 0 && chunk.groups == 0);
}
END_TEST

START_TEST(a_row_of_an_older_writer_is_shorter)
{
    struct chunk chunk;
    put16(1);
    put16(16);
    put32(9);
    put64(8);
    ck_assert(decode_rows(&decoder, &schema, (uint8_t *)payload.data, 16, &chunk));
    ck_assert_uint_eq(group_values(&decoder, chunk.group, 1)[0], 8);
    ck_assert_uint_eq(group_values(&decoder, chunk.group, 2)[0], 0);
}
END_TEST

/* Appends a call of kind 20 with `args` arguments 1, 2, 3 ..., and a row that refers to the row `back` bytes
 * earlier. */
static void put_call(uint64_t time, unsigned args)
{
    put16(TFI_KIND_call);
    put16((uint16_t)(sizeof(struct tfi_rec_call) + args * 8));
    put32(77);
    put64(time);
    put64(9);
    put64((uint64_t)-3);
    put32(1);
    put32(0);
    for (unsigned i = 0; i < args; i++) put64(i + 1);
}

static void put_again(unsigned back, uint64_t time, uint32_t changed, unsigned values)
{
    put16(TFI_ROW_AGAIN);
    put16((uint16_t)(sizeof(struct tfi_again) + values * 8));
    put16((uint16_t)(back / 8));
    put16(5);
    put64(time);
    put32(UINT32_MAX);
    put32(changed);
    for (unsigned i = 0; i < values; i++) put64(100 + i);
}

START_TEST(rows_that_stand_for_calls)
{
    static const uint64_t args[] = {1, 2, 3, 1, 2, 3, 100, 2, 101};
    struct schema calls = {0};
    struct chunk chunk;
    const uint32_t *first;
    schema_builtin(&calls);
    put_call(1000, 3);
    put_again(64, 2000, 0, 0);
    put_again(88, 3000, 5, 2);
    ck_assert(decode_rows(&decoder, &calls, (uint8_t *)payload.data, (uint32_t)payload.length, &chunk));
    ck_assert(chunk.records == 3 && chunk.groups == 1 && chunk.runs == 1 && chunk.bad_bytes == 0);
    struct group *group = chunk.group;
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_uint_eq(group_values(&decoder, group, 0)[i], 77);
        ck_assert_uint_eq(group_values(&decoder, group, 1)[i], (i + 1) * 1000);
        ck_assert_uint_eq(group_values(&decoder, group, 2)[i], i ? UINT32_MAX : 9);
        ck_assert_int_eq((int64_t)group_values(&decoder, group, 3)[i], -3);
        ck_assert_uint_eq(group_values(&decoder, group, 4)[i], i ? 5 : 1);
    }
    const uint64_t *list = group_list(&decoder, group, 6, &first);
    ck_assert_uint_eq(first[3], ARRAY_SIZE(args));
    ck_assert_mem_eq(list, args, sizeof args);
    schema_free(&calls);
}
END_TEST

/* A row may only refer to a whole row of an earlier call that has the arguments it changes. */
START_TEST(rows_that_stand_for_nothing)
{
    static const struct {
        unsigned back, changed, values, calls;
    } bad[] = {{0, 0, 0, 1},  {8, 0, 0, 1},           {128, 0, 0, 1}, {0x7fff8, 0, 0, 1}, {24, 0, 0, 1},
               {64, 8, 1, 1}, {64, 0x80000000, 1, 1}, {64, 7, 2, 1},  {64, 1, 0, 1},      {64, 0, 0, 0}};
    struct chunk chunk;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        payload.length = 0;
        if (bad[i].calls) put_call(1000, 3);
        else put_row(5, 1, 1, 1, 4);
        uint32_t before = (uint32_t)payload.length;
        put_again(bad[i].back, 2000, bad[i].changed, bad[i].values);
        put_call(3000, 0);
        ck_assert(decode_rows(&decoder, &schema, (uint8_t *)payload.data, (uint32_t)payload.length, &chunk));
        ck_assert_msg(chunk.records == 1 && chunk.bad_bytes == payload.length - before, "%zu", i);
    }
}
END_TEST

/* A small payload must not expand beyond the largest block. */
START_TEST(rows_that_stand_for_too_much)
{
    struct chunk chunk;
    put_call(1000, 4000);
    uint32_t size = (uint32_t)payload.length, count = TFI_BLOCK_MAX / size + 10;
    for (unsigned i = 0; i < count; i++) put_again(size + 24 * i, 1, 0, 0);
    ck_assert(decode_rows(&decoder, &schema, (uint8_t *)payload.data, (uint32_t)payload.length, &chunk));
    ck_assert_uint_eq(chunk.records, TFI_BLOCK_MAX / size);
    ck_assert_uint_gt(chunk.bad_bytes, 0);
}
END_TEST

/* ---- columns ---- */

START_TEST(codecs)
{
    struct chunk chunk;
    const uint64_t *values;
    const uint32_t *first;
    static const uint8_t plain[] = {5, 0x80, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1};
    ck_assert(decode_column(0, TFI_PLAIN, 3, plain, sizeof plain, &chunk));
    values = group_values(&decoder, chunk.group, 0);
    ck_assert(values[0] == 5 && values[1] == 128 && values[2] == UINT64_MAX);
    static const uint8_t zigzag[] = {0, 1, 2, 3};
    ck_assert(decode_column(3, TFI_PLAIN, 4, zigzag, 4, &chunk));
    values = group_values(&decoder, chunk.group, 3);
    ck_assert((int64_t)values[1] == -1 && values[2] == 1 && (int64_t)values[3] == -2);
    static const uint8_t delta[] = {20, 2, 1, 0};
    ck_assert(decode_column(2, TFI_DELTA, 4, delta, 4, &chunk));
    values = group_values(&decoder, chunk.group, 2);
    ck_assert(values[0] == 10 && values[1] == 11 && values[2] == 10 && values[3] == 10);
    static const uint8_t runs[] = {9, 2, 8, 3};
    ck_assert(decode_column(1, TFI_RUNS, 5, runs, 4, &chunk));
    values = group_values(&decoder, chunk.group, 1);
    ck_assert((int64_t)values[1] == -5 && values[2] == 4 && values[4] == 4);
    static const uint8_t keyed[] = {2, 2, 2}; /* the first column refers to itself, and cannot be its own key */
    ck_assert(decode_column(1, TFI_KEYED, 3, keyed, 3, &chunk));
    ck_assert(!group_values(&decoder, chunk.group, 1) && chunk.group->damaged);
    ck_assert_ptr_null(group_list(&decoder, chunk.group, 5, &first));
}
END_TEST

START_TEST(keyed_values_and_lists_go_by_the_first_column)
{
    static const uint8_t order[] = {0, 3}, keyed[] = {20, 6, 2};
    static const uint8_t list[] = {1, 10, 2, 2, 4, 9, 2, 2, 2, 2, 2, 2, 2, 2, 2};
    struct chunk chunk;
    const uint32_t *first;
    static const uint8_t ids[] = {1, 2, 0x81, 2}; /* 1, 2, 257: the first and the last have the same key */
    put32(1);
    put32(sizeof order);
    put(order, sizeof order);
    put16(1);
    put16(3);
    put32(3);
    put32(24 + sizeof ids + sizeof keyed + sizeof list);
    put16(0);
    put16(TFI_PLAIN);
    put32(sizeof ids);
    put(ids, sizeof ids);
    put16(1);
    put16(TFI_KEYED);
    put32(sizeof keyed);
    put(keyed, sizeof keyed);
    put16(5);
    put16(TFI_LIST);
    put32(sizeof list);
    put(list, sizeof list);
    ck_assert(decode_columns(&decoder, &schema, (uint8_t *)payload.data, (uint32_t)payload.length, &chunk));
    const uint64_t *values = group_values(&decoder, chunk.group, 1);
    ck_assert(values && values[0] == 10 && values[1] == 3 && values[2] == 11);
    const uint64_t *items = group_list(&decoder, chunk.group, 5, &first);
    ck_assert(items && first[1] == 1 && first[2] == 3 && first[3] == 12);
    ck_assert(items[0] == 5 && items[1] == 1 && items[2] == 2);
    ck_assert(items[3] == 6 && items[4] == 1 && items[11] == 1); /* the ninth has no key */
}
END_TEST

START_TEST(columns_that_make_no_sense)
{
    struct chunk chunk;
    static const uint8_t endless[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1};
    static const struct {
        uint16_t field, codec;
        uint32_t count;
        const char *bytes;
        size_t length;
    } bad[] = {
        {0, TFI_PLAIN, 3, "\1\1", 2},
        {0, TFI_PLAIN, 1, "\1\1", 2},
        {0, TFI_PLAIN, 2, "\1\x80", 2},
        {0, TFI_RUNS, 3, "\2\2", 2},
        {0, TFI_RUNS, 3, "\2\4", 2},
        {0, TFI_RUNS, 3, "\2\0\2\3", 4},
        {0, TFI_LIST, 1, "\0", 1},
        {5, TFI_PLAIN, 1, "\0", 1},
        {0, 99, 1, "\0", 1},
        {0, TFI_PLAIN, 1, (char *)endless, sizeof endless},
        {5, TFI_LIST, 1, "\x7f", 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ck_assert(decode_column(bad[i].field, bad[i].codec, bad[i].count, bad[i].bytes, bad[i].length, &chunk));
        ck_assert_ptr_null(group_values(&decoder, chunk.group, bad[i].field));
        ck_assert_ptr_null(group_values(&decoder, chunk.group, bad[i].field));
        ck_assert_msg(chunk.group->damaged, "case %zu", i);
    }
    ck_assert(decode_column(77, TFI_PLAIN, 1, "\1", 1, &chunk)); /* a column of a later version */
    ck_assert(!group_values(&decoder, chunk.group, 0) && !chunk.group->damaged);
}
END_TEST

/* Cuts a valid payload short at every byte, and sets each of its bytes to all values that matter. */
START_TEST(structures_that_make_no_sense)
{
    struct chunk chunk;
    ck_assert(decode_column(0, TFI_PLAIN, 3, "\1\2\3", 3, &chunk));
    size_t length = payload.length;
    for (size_t i = 0; i < length; i++)
        ck_assert(!decode_columns(&decoder, &schema, (uint8_t *)payload.data, (uint32_t)i, &chunk));
    for (size_t i = 0; i < length; i++) {
        char before = payload.data[i];
        for (int value = 0; value < 256; value++) {
            payload.data[i] = (char)value;
            bool good = decode_columns(&decoder, &schema, (uint8_t *)payload.data, (uint32_t)length, &chunk);
            for (unsigned f = 0; good && f < 6; f++) group_values(&decoder, chunk.group, (int)f);
        }
        payload.data[i] = before;
    }
}
END_TEST

START_TEST(a_count_is_bounded_by_what_its_rows_would_take)
{
    struct chunk chunk;
    uint8_t runs[16];
    size_t length = 0;
    runs[length++] = 0;
    for (uint32_t count = 1000000; count; count >>= 7) runs[length++] = (uint8_t)(count | (count >= 128 ? 128 : 0));
    ck_assert(!decode_column(0, TFI_RUNS, 1000000, runs, length, &chunk));
}
END_TEST

START_TEST(schemas)
{
    struct schema odd = {0};
    static const char lines[] = "5 five a:uint8_t:UINT:PLAIN b:strange:UINT:PLAIN c:uint32_t:NEW:PLAIN\n"
                                "x y\n70000 large a:b:c:d\n0 zero\n6\n6 \n7 seven broken\n8 eight\n5 again\n";
    ck_assert_uint_eq(schema_parse(&odd, lines, sizeof lines - 1), 6);
    ck_assert_uint_eq(odd.count, 2);
    const struct kind *five = schema_kind(&odd, 5);
    ck_assert(five->fields == 3 && five->field[0].offset == 4 && five->field[1].offset == UINT32_MAX);
    ck_assert(five->field[2].type == TFI_TYPE_UINT && five->time == -1);
    ck_assert_str_eq(five->name, "five");
    ck_assert_ptr_null(schema_kind(&odd, 7));
    schema_free(&odd);
    schema_builtin(&odd);
    const struct kind *call = schema_kind(&odd, TFI_KIND_call);
    ck_assert_int_eq(call->own[COL_call_args], 6);
    ck_assert(call->field[6].is_list && call->field[call->time].type == TFI_TYPE_TICKS);
    ck_assert_uint_eq(call->row_bytes, sizeof(struct tfi_rec_call));
    schema_free(&odd);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("decode");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, rows);
    tcase_add_test(tcase, rows_end_where_one_makes_no_sense);
    tcase_add_test(tcase, a_row_of_an_older_writer_is_shorter);
    tcase_add_test(tcase, rows_that_stand_for_calls);
    tcase_add_test(tcase, rows_that_stand_for_nothing);
    tcase_add_test(tcase, rows_that_stand_for_too_much);
    tcase_add_test(tcase, codecs);
    tcase_add_test(tcase, keyed_values_and_lists_go_by_the_first_column);
    tcase_add_test(tcase, columns_that_make_no_sense);
    tcase_add_test(tcase, structures_that_make_no_sense);
    tcase_add_test(tcase, a_count_is_bounded_by_what_its_rows_would_take);
    tcase_add_test(tcase, schemas);
    return unit_run(tcase);
}
