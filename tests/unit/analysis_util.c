/* analysis_util.c - texts, suggestions, and the map and the names of the analyser. */
#include <stdlib.h>
#include <string.h>

#include "model/names.h"
#include "pattern.h"
#include "tfi_trace.h"
#include "unit.h"

START_TEST(the_map_keeps_what_is_put_and_forgets_what_is_removed)
{
    enum { KEYS = 3000 };
    struct map map = {0};
    static uint32_t kept[KEYS];
    srand(7);
    ck_assert_uint_eq(map_get(&map, 5), MAP_NONE);
    map_remove(&map, 5);
    for (int i = 0; i < 200000; i++) {
        uint32_t key = (uint32_t)rand() % KEYS, value = (uint32_t)rand() % 1000;
        if (rand() % 3) {
            map_put(&map, (uint64_t)key << 40, value);
            kept[key] = value + 1;
        } else {
            map_remove(&map, (uint64_t)key << 40);
            kept[key] = 0;
        }
        key = (uint32_t)rand() % KEYS;
        ck_assert_uint_eq(map_get(&map, (uint64_t)key << 40), kept[key] ? kept[key] - 1 : MAP_NONE);
    }
    map_free(&map);
}
END_TEST

START_TEST(the_nearest_name_is_one_that_can_be_meant)
{
    static const char *const names[] = {"--format", "--output", "--rank", "stages", "export chrome"};
    ck_assert_str_eq(nearest("--fromat", names, 5), "--format");
    ck_assert_str_eq(nearest("--rnk", names, 5), "--rank");
    ck_assert_str_eq(nearest("--out", names, 5), "--output");
    ck_assert_str_eq(nearest("stage", names, 5), "stages");
    ck_assert_ptr_null(nearest("completely different", names, 5));
    ck_assert_ptr_null(nearest("xyz", names, 5));
}
END_TEST

START_TEST(numbers_are_numbers_only)
{
    uint64_t value;
    ck_assert(tfi_whole_number("18446744073709551615", 0, UINT64_MAX, &value) && value == UINT64_MAX);
    static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "0x10", "18446744073709551616", "1e3"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!tfi_whole_number(bad[i], 0, UINT64_MAX, &value), "%s", bad[i]);
}
END_TEST

START_TEST(texts_grow)
{
    struct text text = {0};
    for (int i = 0; i < 1000; i++) text_format(&text, "%d%s", i % 10, i % 100 == 99 ? "\n" : "");
    ck_assert_uint_eq(text.length, 1010);
    char *long_one = string_format("%s%s", text.data, text.data);
    ck_assert_uint_eq(strlen(long_one), 2020);
    free(long_one);
    text_free(&text);
}
END_TEST

START_TEST(names_are_kept_once)
{
    struct names names;
    names_init(&names);
    ck_assert_uint_eq(names_add(&names, "", 0), NAME_NONE);
    ck_assert_uint_eq(names_add(&names, "(lost)", 6), NAME_LOST);
    uint32_t first = names_add(&names, "a\0b", 3);
    ck_assert_uint_ne(names_add(&names, "a", 1), first);
    for (int i = 0; i < 5000; i++) {
        char *text = string_format("name %d", i);
        names_add(&names, text, strlen(text));
        free(text);
    }
    ck_assert_uint_eq(names_add(&names, "a\0b", 3), first);
    ck_assert_uint_eq(names.count, 5006);
    ck_assert_str_eq(names_get(&names, 1000000)->text, "(lost)");
    names_free(&names);
}
END_TEST

static void add_string(struct text *payload, uint32_t id, const char *string)
{
    struct tfi_string head = {id, (uint32_t)strlen(string)};
    text_add(payload, (char *)&head, sizeof head);
    text_add(payload, string, head.length);
    text_add(payload, "\0\0\0\0\0\0\0", -head.length & 7);
}

START_TEST(strings_are_found_by_their_number)
{
    struct text payload = {0};
    struct strings strings = {0};
    static const uint32_t far = 4000000000u;
    add_string(&payload, 7, "seven");
    add_string(&payload, far, "far away");
    add_string(&payload, 7, "seven again");
    ck_assert_uint_eq(strings_parse(&strings, (uint8_t *)payload.data, payload.length - 3), payload.length - 3);
    add_string(&payload, 9, "cut");
    ck_assert_uint_lt(strings_parse(&strings, (uint8_t *)payload.data, payload.length - 7), payload.length - 7);
    strings_sort(&strings);
    ck_assert_uint_eq(strings.count, 2);
    ck_assert_str_eq(strings_get(&strings, far)->text, "far away");
    ck_assert_ptr_null(strings_get(&strings, 8));
    ck_assert_ptr_null(strings_get(&strings, (uint64_t)far << 8));
    ck_assert_uint_eq(strings_get(&strings, 7)->length, 5);
    strings_free(&strings);
    text_free(&payload);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("util");
    tcase_add_test(tcase, the_map_keeps_what_is_put_and_forgets_what_is_removed);
    tcase_add_test(tcase, the_nearest_name_is_one_that_can_be_meant);
    tcase_add_test(tcase, numbers_are_numbers_only);
    tcase_add_test(tcase, texts_grow);
    tcase_add_test(tcase, names_are_kept_once);
    tcase_add_test(tcase, strings_are_found_by_their_number);
    return unit_run(tcase);
}
