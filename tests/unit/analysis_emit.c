/* analysis_emit.c - the same rows as text, JSON and csv. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/command.h"
#include "utf8.h"
#include "write/emit.h"
#include "unit.h"

static struct out out;
static struct emit emit;
static char *written;

static void begin(enum format format, enum emit_style style)
{
    static const struct command dump = {.name = "dump", .keys = "rank,pid,tid,kind,time_us,live,values"};
    ck_assert(out_open(&out, "emitted"));
    emit_begin(&emit, &out, format, style, &dump);
}

static const char *finish(void)
{
    emit_end(&emit);
    ck_assert(out_close(&out));
    free(written);
    written = calloc(1, 1 << 16);
    FILE *f = fopen("emitted", "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_lt(fread(written, 1, (1 << 16) - 1, f), (1 << 16) - 1);
    fclose(f);
    unlink("emitted");
    return written;
}

static void teardown(void)
{
    free(written);
    written = NULL;
}

/* Prints a row with the keys of `dump`: rank,pid,tid,kind,time_us,live,values. */
static void put_row(int64_t rank, const char *kind, int64_t time)
{
    emit_row(&emit);
    emit_known(&emit, "rank", rank);
    emit_bytes(&emit, "pid", 2048);
    emit_null(&emit, "tid");
    emit_bytes_text(&emit, "kind", kind, strlen(kind));
    emit_us(&emit, "time_us", time);
    emit_bool(&emit, "live", rank > 0);
    emit_open(&emit, "values", false);
    emit_hex(&emit, "flags", 255);
    emit_open(&emit, "args", true);
    emit_count(&emit, NULL, INT64_MAX);
    emit_int(&emit, NULL, INT64_MIN);
    emit_close(&emit);
    emit_double(&emit, "x", 0.5);
    emit_pct(&emit, "share_pct", 12.34567);
    emit_double(&emit, "nan", NAN);
    emit_close(&emit);
    emit_row_end(&emit);
}

static void put_all(void)
{
    put_row(-1, "a \"quoted\", one\n", -1234567);
    put_row(12, "z", 5000000000);
    emit_totals(&emit);
    emit_count(&emit, "records", 2);
    emit_us(&emit, "span_us", 1500);
}

START_TEST(json)
{
    json_error_t error;
    begin(FORMAT_JSON, STYLE_TABLE);
    emit_input(&emit, "a \x01\xff", "tfr", 3, true, 7, 0, true);
    emit_input(&emit, "b", NULL, -1, false, -1, -1, false);
    put_all();
    json_t *top = json_loads(finish(), 0, &error);
    ck_assert_msg(top != NULL, "%s: %s", error.text, written);
    ck_assert_str_eq(json_string_value(json_object_get(top, "command")), "dump");
    ck_assert_str_eq(json_string_value(json_object_get(top, "rules")), "exact");
    json_t *inputs = json_object_get(top, "inputs"), *rows = json_object_get(top, "rows");
    ck_assert(json_array_size(inputs) == 2 && json_array_size(rows) == 2);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(inputs, 0), "path")), "a \x01\xef\xbf\xbd");
    ck_assert(json_is_null(json_object_get(json_array_get(inputs, 1), "events")));
    json_t *row = json_array_get(rows, 0), *values = json_object_get(row, "values");
    ck_assert(json_is_null(json_object_get(row, "rank")) && json_is_false(json_object_get(row, "live")));
    ck_assert_str_eq(json_string_value(json_object_get(row, "kind")), "a \"quoted\", one\n");
    ck_assert_double_eq(json_real_value(json_object_get(row, "time_us")), -1234.567);
    ck_assert_str_eq(json_string_value(json_object_get(values, "flags")), "0xff");
    ck_assert(json_is_null(json_object_get(values, "nan")));
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(values, "args"), 1)), INT64_MIN);
    ck_assert_double_eq(json_real_value(json_object_get(json_object_get(top, "totals"), "span_us")), 1.5);
    json_decref(top);
}
END_TEST

START_TEST(json_without_rows)
{
    begin(FORMAT_JSON, STYLE_LINES);
    emit_totals(&emit);
    json_t *top = json_loads(finish(), 0, NULL);
    ck_assert_ptr_nonnull(top);
    ck_assert(json_array_size(json_object_get(top, "rows")) == 0 && json_is_array(json_object_get(top, "inputs")));
    json_decref(top);
}
END_TEST

START_TEST(csv)
{
    begin(FORMAT_CSV, STYLE_TABLE);
    put_all();
    ck_assert_str_eq(finish(),
                     "rank,pid,tid,kind,time_us,live,values\n"
                     ",2048,,\"a \"\"quoted\"\", one\\x0a\",-1234.567,false,"
                     "flags=0xff;args=(9223372036854775807;-9223372036854775808);x=0.5;share_pct=12.3457;nan=\n"
                     "12,2048,,z,5000000.000,true,"
                     "flags=0xff;args=(9223372036854775807;-9223372036854775808);x=0.5;share_pct=12.3457;nan=\n");
}
END_TEST

START_TEST(table)
{
    begin(FORMAT_TEXT, STYLE_TABLE);
    put_row(1, "\xc3\xbc", 999);
    put_row(12, "long\x1b[1m", 5000000000);
    emit_totals(&emit);
    emit_us(&emit, "span_us", 1500);
    static const char values[] =
        "flags 0xff, args (9223372036854775807, -9223372036854775808), x 0.5, share_pct 12.3 %, nan -\n";
    char expected[1024];
    snprintf(expected, sizeof expected,
             "rank      pid  kind             time  live  values\n"
             "   1  2.0 KiB  \xc3\xbc            0.999 us  yes   %s"
             "  12  2.0 KiB  long\\x1b[1m   5.000 s  yes   %s"
             "total: span 1.500 us\n",
             values, values);
    ck_assert_str_eq(finish(), expected);
}
END_TEST

START_TEST(lines)
{
    begin(FORMAT_TEXT, STYLE_LINES);
    put_row(1, "k \"\\", 2000000);
    emit_totals(&emit);
    ck_assert_str_eq(finish(), "1 2048 - \"k \\\"\\\\\" 2000.000 true flags=0xff args=(9223372036854775807 "
                               "-9223372036854775808) x=0.5 share_pct=12.3457 nan=-\n");
}
END_TEST

START_TEST(blocks)
{
    begin(FORMAT_TEXT, STYLE_BLOCKS);
    put_row(1, "k", 2000000);
    emit_totals(&emit);
    emit_count(&emit, "records", 1);
    const char *text = finish();
    ck_assert(strncmp(text, "1\n  pid               2.0 KiB\n  tid               -\n", 48) == 0);
    ck_assert_ptr_nonnull(strstr(text, "  time              2.000 ms\n"));
    ck_assert_ptr_nonnull(strstr(text, "\ntotal\n  records           1\n"));
}
END_TEST

START_TEST(utf8)
{
    static const struct {
        const char *bytes;
        size_t length;
    } cases[] = {{"a", 1},
                 {"\xc3\xbc", 2},
                 {"\xe2\x86\x92", 3},
                 {"\xf0\x9d\x84\x9e", 4},
                 {"\xff", 0},
                 {"\x80", 0},
                 {"\xc0\xaf", 0},
                 {"\xe0\x80\x80", 0},
                 {"\xed\xa0\x80", 0},
                 {"\xc3", 0},
                 {"\xf4\x90\x80\x80", 0},
                 {"\xf0\x80\x80\x80", 0},
                 {"\xf8\x88\x80\x80\x80", 0}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        ck_assert_uint_eq(tfi_utf8_length(cases[i].bytes, strlen(cases[i].bytes)), cases[i].length);
}
END_TEST

START_TEST(much_of_it)
{
    ck_assert(out_open(&out, "emitted"));
    for (int i = 0; i < 300000; i++) out_puts(&out, "0123456789");
    ck_assert(out_close(&out));
    int fd = open("emitted", O_RDONLY);
    ck_assert_int_eq(lseek(fd, 0, SEEK_END), 3000000);
    close(fd);
    unlink("emitted");
    ck_assert(out_open(&out, "emitted"));
    out_puts(&out, "x");
    out_discard(&out);
    ck_assert_int_ne(access("emitted", F_OK), 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("emit");
    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, json);
    tcase_add_test(tcase, json_without_rows);
    tcase_add_test(tcase, csv);
    tcase_add_test(tcase, table);
    tcase_add_test(tcase, lines);
    tcase_add_test(tcase, blocks);
    tcase_add_test(tcase, utf8);
    tcase_add_test(tcase, much_of_it);
    return unit_run(tcase);
}
