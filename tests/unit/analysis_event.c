/* analysis_event.c - events of typed values are those of their text, strings of JSON are escaped at any place, and a scratch file is read by windows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/scratch.h"
#include "write/emit.h"
#include "write/event.h"
#include "write/out.h"
#include "unit.h"

static const double reals[] = {
    0,   -0.0,    1, -7, 0.1, 1.0 / 3, 99999999999999984.0, 1e17, -1e17, 1e-300, 1e300, 1.5e16, 9007199254740993.0,
    NAN, INFINITY};
static const int64_t numbers[] = {0,
                                  1,
                                  -1,
                                  999,
                                  -1001,
                                  123456789,
                                  INT64_C(1) << 53,
                                  (INT64_C(1) << 53) + 1,
                                  INT64_MAX,
                                  -INT64_MAX,
                                  INT64_C(-7889238000000001)};

/* Emits one event, with values of every type. */
static void emit_event(struct emit *e)
{
    emit_text(e, "ph", "X");
    emit_text(e, "cat", "c\x01\xff\xe2\x80\xae");
    emit_bytes_text(e, "name", "a\0b\"", 4);
    emit_int(e, "pid", -7);
    emit_count(e, "tid", 9);
    emit_us(e, "ts", 1234567);
    emit_us(e, "dur", 1001);
    emit_open(e, "args", false);
    for (size_t i = 0; i < ARRAY_SIZE(reals); i++) emit_double(e, "real", reals[i]);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) emit_us(e, "us", numbers[i]);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) emit_int(e, "int", numbers[i]);
    emit_count(e, "count", UINT64_MAX);
    emit_bool(e, "bool", true);
    emit_null(e, "null");
    emit_hex(e, "hex", 0xabc);
    emit_json(e, "json", "[1, {\"a\": \"\xe2\x80\xae\"}]", 17);
    emit_open(e, "list", true);
    emit_count(e, NULL, 1);
    emit_open(e, NULL, false);
    emit_text(e, "k", "v");
    emit_close(e);
    emit_close(e);
    emit_open(e, "empty", false);
    emit_close(e);
    emit_close(e);
}

static struct out text;
static struct event_values values;
static struct event event;

static void setup(void)
{
    struct emit e = {.out = &text, .format = FORMAT_JSON}, typed = {.values = &values};
    out_memory(&text);
    emit_event(&e);
    emit_event(&typed);
    event = event_of_values(&values, 1000);
}

static void teardown(void)
{
    out_discard(&text);
    event_values_free(&values);
}

START_TEST(head)
{
    ck_assert_int_eq(event.phase, 'X');
    ck_assert(event.pid == -7 && event.tid == 9 && event.ts == 1235567 && event.dur == 1001);
    ck_assert_uint_eq(event.has, HAS_PID | HAS_TID | HAS_TS | HAS_FLOAT_TS | HAS_DUR | HAS_FLOAT_DUR);
    ck_assert(slice_is(event.category, "c\x01\xef\xbf\xbd\xe2\x80\xae"));
    ck_assert(event.name.length == 4 && memcmp(event.name.at, "a\0b\"", 4) == 0);
}
END_TEST

START_TEST(printed)
{
    struct out again;
    struct emit e = {.out = &again, .format = FORMAT_JSON};
    out_memory(&again);
    for (size_t i = 0; i < values.count;) i += value_print(&e, &values.value[i]);
    ck_assert_uint_eq(again.used, text.used);
    ck_assert(memcmp(again.buffer, text.buffer, text.used) == 0);
    out_discard(&again);
}
END_TEST

/* Each number is the one that a reader of the text finds. */
START_TEST(numbers_of_the_text)
{
    struct text object = {0};
    struct event_values split = {0};
    const char *args = memmem(text.buffer, text.used, "{\"real\"", 7);
    text_add(&object, args, text.used - (size_t)(args - text.buffer));
    struct event in_text = {.args = json_padded(&object)};
    event_split(&in_text, &split);
    ck_assert_uint_eq(in_text.arguments, ARRAY_SIZE(reals) + 2 * ARRAY_SIZE(numbers) + 7);
    for (size_t i = 0; i < ARRAY_SIZE(reals) + 2 * ARRAY_SIZE(numbers) + 1; i++) {
        const struct value *value = &event.argument[i];
        struct slice written = in_text.argument[i].text;
        char *digits = mem_text(written.at, written.length);
        struct number number;
        int64_t whole;
        json_number(written.at, 0, &number);
        bool is_whole = number.state == NUMBER_GOOD && !number.is_float && number.magnitude <= INT64_MAX;
        ck_assert_msg(value_int(value, &whole) == is_whole, "%s", digits);
        if (is_whole) ck_assert_int_eq(whole, number.negative ? -(int64_t)number.magnitude : (int64_t)number.magnitude);
        if (*digits != 'n') ck_assert_msg(value_real(value) == strtod(digits, NULL), "%s", digits);
        free(digits);
    }
    event_values_free(&split);
    text_free(&object);
}
END_TEST

START_TEST(arguments)
{
    const struct value *list = event_argument(&event, "list");
    ck_assert(list->kind == VALUE_LIST && value_length(list) == 6 && !event_argument(&event, "k"));
    char *json = value_text(event_argument(&event, "json"));
    ck_assert_ptr_null(json); /* a list is no text */
    ck_assert(slice_is(event_argument(&event, "json")->text, "[1, {\"a\": \"\\u202e\"}]"));
}
END_TEST

static unsigned long reads(void)
{
    unsigned long count = 0;
    char line[80];
    FILE *io = fopen("/proc/self/io", "r");
    while (io && fgets(line, sizeof line, io)) sscanf(line, "syscr: %lu", &count);
    if (io) fclose(io);
    return count;
}

/* Eight tables of 4 MB lie one after the other, and are read side by side. */
START_TEST(tables_of_a_scratch_file)
{
    enum { TABLES = 8, ROWS = 1 << 16, ROW = 64 };
    struct scratch scratch;
    char row[ROW] = "";
    scratch_init(&scratch);
    for (uint32_t i = 0; i < TABLES * ROWS; i++) {
        memcpy(row, &i, sizeof i);
        bool in_order = scratch_add(&scratch, row, ROW) == (uint64_t)i * ROW;
        if (!in_order) ck_abort_msg("row %u is elsewhere", i);
    }
    unsigned long before = reads();
    for (uint32_t i = 0; i < ROWS; i++) {
        for (uint32_t table = 0; table < TABLES; table++) {
            uint32_t number = table * ROWS + i, found;
            memcpy(&found, scratch_get(&scratch, (uint64_t)number * ROW, ROW), sizeof found);
            if (found != number) ck_assert_uint_eq(found, number);
        }
    }
    ck_assert_uint_lt(reads() - before, 2 * TABLES * ROWS * ROW / (1 << 14));
    scratch_free(&scratch);
}
END_TEST

/* A short text is looked at sixteen bytes at a time where the buffer has room, in memory byte by byte. */
START_TEST(strings_of_any_length)
{
    static const char *const odd[] = {"\"",   "\\",       "\n",           "\x1f", "\x7f", "\x80",
                                      "\xff", "\xc3\xa9", "\xe2\x80\xae", " ",    "~",    "!"};
    static char buffer[OUT_BUFFER];
    struct out quick = {.fd = -1, .buffer = buffer}, slow;
    char bytes[48];
    out_memory(&slow);
    for (size_t length = 0; length < 40; length++) {
        for (size_t at = 0; at <= length; at++) {
            for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
                size_t all = length + strlen(odd[i]);
                memset(bytes, 'a', sizeof bytes);
                memcpy(bytes + at, odd[i], strlen(odd[i]));
                quick.used = slow.used = 0;
                out_json_string(&quick, bytes, all);
                out_json_string(&slow, bytes, all);
                ck_assert_uint_eq(quick.used, slow.used);
                ck_assert_mem_eq(quick.buffer, slow.buffer, slow.used);
            }
        }
    }
    out_discard(&slow);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("event");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, head);
    tcase_add_test(tcase, printed);
    tcase_add_test(tcase, numbers_of_the_text);
    tcase_add_test(tcase, arguments);
    tcase_add_test(tcase, tables_of_a_scratch_file);
    tcase_add_test(tcase, strings_of_any_length);
    return unit_run(tcase);
}
