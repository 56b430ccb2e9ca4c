/* analysis_json.c - numbers in fixed point, escapes, skipping values, and the windows of a stream. */
#include <stdlib.h>
#include <string.h>

#include "read/json/json.h"
#include "read/stream/stream.h"
#include "unit.h"

/* Returns a text with the padding that the scanner needs: a zero and quotes. */
static char *padded(const char *text)
{
    size_t length = strlen(text);
    char *copy = mem_resize(NULL, length + STREAM_PAD, 1);
    memcpy(copy, text, length + 1);
    memset(copy + length + 1, '"', STREAM_PAD - 1);
    return copy;
}

/* ---- numbers ---- */

static const struct {
    const char *text;
    unsigned scale;
    enum number_state state;
    bool negative, is_float;
    uint64_t magnitude;
} numbers[] = {
    {"0", 3, NUMBER_GOOD, false, false, 0},
    {"7", 3, NUMBER_GOOD, false, false, 7000},
    {"-7", 0, NUMBER_GOOD, true, false, 7},
    {"123.456", 3, NUMBER_GOOD, false, true, 123456},
    {"123.4", 3, NUMBER_GOOD, false, true, 123400},
    {"123.", 3, NUMBER_GOOD, false, true, 123000},
    {".5", 3, NUMBER_GOOD, false, true, 500},
    {"-0.001", 3, NUMBER_GOOD, true, true, 1},
    {"1.0005", 3, NUMBER_GOOD, false, true, 1001},
    {"1.00049999999999999999999999999999999999999", 3, NUMBER_GOOD, false, true, 1000},
    {"1.9999", 3, NUMBER_GOOD, false, true, 2000},
    {"1e3", 3, NUMBER_GOOD, false, true, 1000000},
    {"1E+3", 3, NUMBER_GOOD, false, true, 1000000},
    {"25e-4", 3, NUMBER_GOOD, false, true, 3},
    {"24e-4", 3, NUMBER_GOOD, false, true, 2},
    {"1e-400", 3, NUMBER_GOOD, false, true, 0},
    {"0e999999999999", 3, NUMBER_GOOD, false, true, 0},
    {"12345678901234567890e-19", 3, NUMBER_GOOD, false, true, 1235},
    {"1.669783687464181e15", 3, NUMBER_GOOD, false, true, 1669783687464181000},
    {"1669783687464181", 3, NUMBER_GOOD, false, false, 1669783687464181000},
    {"1669783687464181.123", 3, NUMBER_GOOD, false, true, 1669783687464181123},
    {"9007199254740993", 0, NUMBER_GOOD, false, false, 9007199254740993},
    {"18446744073709551615", 0, NUMBER_GOOD, false, false, UINT64_MAX},
    {"18446744073709551616", 0, NUMBER_TOO_LARGE, false, false, UINT64_MAX},
    {"18446744073709551.615", 3, NUMBER_GOOD, false, true, UINT64_MAX},
    {"18446744073709551.6155", 3, NUMBER_TOO_LARGE, false, true, UINT64_MAX},
    {"-1e30", 3, NUMBER_TOO_LARGE, true, true, UINT64_MAX},
    {"1e999999999999", 0, NUMBER_TOO_LARGE, false, true, UINT64_MAX},
    {"5.6", 0, NUMBER_GOOD, false, true, 6},
    {"\"123.5\"", 3, NUMBER_GOOD, false, true, 123500},
    {"\"-4\"", 0, NUMBER_GOOD, true, false, 4},
    {"\"stream 7\"", 0, NUMBER_NONE, false, false, 0},
    {"\"7 \"", 0, NUMBER_NONE, false, false, 0},
    {"\"\"", 0, NUMBER_NONE, false, false, 0},
    {"NaN", 3, NUMBER_NONE, false, false, 0},
    {"-Infinity", 3, NUMBER_NONE, true, false, 0},
    {"null", 3, NUMBER_NONE, false, false, 0},
    {"-", 3, NUMBER_NONE, true, false, 0},
};

START_TEST(numbers_are_exact)
{
    struct number number;
    char *text = padded(numbers[_i].text);
    const char *after = json_number(text, numbers[_i].scale, &number);
    ck_assert_msg(number.state == numbers[_i].state, "%s", text);
    ck_assert_uint_eq(number.magnitude, numbers[_i].magnitude);
    if (number.state == NUMBER_NONE) {
        ck_assert_ptr_eq(after, text);
    } else {
        ck_assert_ptr_eq(after, text + strlen(text));
        ck_assert_int_eq(number.negative, numbers[_i].negative);
        ck_assert_int_eq(number.is_float, numbers[_i].is_float);
    }
    free(text);
}
END_TEST

/* ---- strings ---- */

static const struct {
    const char *text, *plain;
} escapes[] = {
    {"plain", "plain"},
    {"\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t"},
    {"\\u0041\\u00e9\\u20AC", "A\xc3\xa9\xe2\x82\xac"},
    {"\\ud83d\\ude00", "\xf0\x9f\x98\x80"},
    {"\\ud83dx", "\xed\xa0\xbdx"},
    {"\\ud83d\\u0041", "\xed\xa0\xbd"
                       "A"},
    {"\\ude00", "\xed\xb8\x80"},
    {"\\u12", "\\u12"},
    {"\\u12g4", "\\u12g4"},
    {"\\x", "\\x"},
    {"end\\", "end\\"},
    {"\xff\xfe", "\xff\xfe"},
};

START_TEST(escapes_are_resolved)
{
    char plain[64];
    size_t length = json_unescape(plain, escapes[_i].text, strlen(escapes[_i].text));
    ck_assert_uint_le(length, strlen(escapes[_i].text));
    plain[length] = 0;
    ck_assert_str_eq(plain, escapes[_i].plain);
}
END_TEST

START_TEST(a_string_ends_at_its_quote)
{
    bool escaped = false;
    char *text = padded("abc\\\\\\\" and a text that is longer than sixteen bytes\" rest");
    const char *end = json_string_end(text, &escaped);
    ck_assert(escaped);
    ck_assert_int_eq(memcmp(end, "\" rest", 6), 0);
    free(text);
}
END_TEST

/* ---- values ---- */

static const struct {
    const char *text;
    int length; /* -1: invalid */
} values[] = {
    {"1,", 1},
    {"-1.5e3]", 6},
    {"NaN}", 3},
    {"\"a\\\"b\",", 6},
    {"{},", 2},
    {"[1, {\"a\": [\"]}\", {}]}, 2] ,", 25},
    {"{\"a\": \"\\\\\"}", 11},
    {"[1}", -1},
    {"{\"a\": [1}]", -1},
    {"{\"lost: 1}, {\"ph\": 2}", -1},
    {",", -1},
    {"}", -1},
};

START_TEST(values_are_gone_over)
{
    const char *stopped;
    char *text = padded(values[_i].text);
    const char *after = json_skip(text, &stopped);
    if (values[_i].length < 0) {
        ck_assert_ptr_null(after);
        ck_assert(stopped < text + strlen(text));
    } else {
        ck_assert_ptr_eq(after, text + values[_i].length);
    }
    free(text);
}
END_TEST

START_TEST(a_cut_value_is_cut_and_not_wrong)
{
    const char *stopped, *whole = "{\"a\": [1, \"x\\\"y\", {\"b\": null}], \"c\": {\"d\": [[]]}}";
    for (size_t length = 1; length < strlen(whole); length++) {
        char *part = mem_text(whole, length), *text = padded(part);
        const char *after = json_skip(text, &stopped);
        ck_assert_msg(!after && stopped >= text + length, "%s", part);
        free(part);
        free(text);
    }
}
END_TEST

START_TEST(values_in_pieces_end_where_they_end_in_one)
{
    const char *whole = "[1, {\"a\\\\\": \"]}\\\"\"}, [[2]]], rest";
    size_t length = strlen(whole);
    for (size_t piece = 1; piece < length; piece++) {
        struct json_skipper skipper = {0};
        const char *after = NULL;
        for (size_t at = 0; !after && at < length; at += piece)
            after = json_skip_piece(&skipper, whole + at, whole + MIN(at + piece, length));
        ck_assert_ptr_eq(after, strstr(whole, ", rest"));
    }
}
END_TEST

START_TEST(deep_values_need_no_stack)
{
    enum { DEPTH = 1000000 };
    const char *stopped;
    char *text = mem_resize(NULL, 2 * DEPTH + STREAM_PAD, 1);
    memset(text, '[', DEPTH);
    memset(text + DEPTH, ']', DEPTH);
    text[2 * DEPTH] = 0;
    memset(text + 2 * DEPTH + 1, '"', STREAM_PAD - 1);
    ck_assert_ptr_eq(json_skip(text, &stopped), text + 2 * DEPTH);
    free(text);
}
END_TEST

START_TEST(members_are_found)
{
    int64_t number;
    char *text = padded("{ \"rank\" : 3, \"a\": {\"rank\": 4}, \"name\": \"x\\u0041\", \"none\": null}");
    struct slice object = {text, strlen(text)};
    ck_assert(json_int(json_member(object, "rank"), &number));
    ck_assert_int_eq(number, 3);
    char *name = json_text(json_member(object, "name"));
    ck_assert_str_eq(name, "xA");
    ck_assert(!json_int(json_member(object, "none"), &number));
    ck_assert(!json_int(json_member(object, "other"), &number));
    ck_assert_ptr_null(json_text(json_member(object, "a")));
    free(name);
    free(text);
}
END_TEST

/* ---- streams ---- */

START_TEST(a_stream_keeps_what_is_left)
{
    static const char whole[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    size_t length = sizeof whole - 1;
    struct stream stream;
    stream_open_memory(&stream, whole, length, (size_t)_i + 1);
    size_t read = 0, kept = 0;
    while (stream_more(&stream)) {
        ck_assert_uint_ge((size_t)(stream.end - stream.at), kept + 1);
        ck_assert_int_eq(memcmp(stream.at, whole + read, (size_t)(stream.end - stream.at)), 0);
        ck_assert_uint_eq(stream_offset(&stream, stream.at), read);
        ck_assert_int_eq(*stream.end, 0);
        ck_assert_int_eq(stream.end[1], '"');
        size_t take = (size_t)(stream.end - stream.at) / 2; /* the next window repeats half of it */
        stream.at += take;
        read += take;
        kept = (size_t)(stream.end - stream.at);
    }
    ck_assert_uint_eq(read + kept, length);
    ck_assert(!stream_more(&stream));
    stream_close(&stream);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("json");
    tcase_add_loop_test(tcase, numbers_are_exact, 0, (int)ARRAY_SIZE(numbers));
    tcase_add_loop_test(tcase, escapes_are_resolved, 0, (int)ARRAY_SIZE(escapes));
    tcase_add_test(tcase, a_string_ends_at_its_quote);
    tcase_add_loop_test(tcase, values_are_gone_over, 0, (int)ARRAY_SIZE(values));
    tcase_add_test(tcase, a_cut_value_is_cut_and_not_wrong);
    tcase_add_test(tcase, values_in_pieces_end_where_they_end_in_one);
    tcase_add_test(tcase, deep_values_need_no_stack);
    tcase_add_test(tcase, members_are_found);
    tcase_add_loop_test(tcase, a_stream_keeps_what_is_left, 0, 40);
    return unit_run(tcase);
}
