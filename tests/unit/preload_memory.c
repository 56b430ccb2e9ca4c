/* preload_memory.c - the library's own memcpy, memmove and memset, for all lengths, places and overlaps. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "unit.h"

enum { ROOM = 400, MOST = 90 };

static unsigned char before[ROOM], after[ROOM], wanted[ROOM];
static volatile size_t length; /* the compiler has no copies of its own for it */

static void begin(void)
{
    for (int i = 0; i < ROOM; i++) before[i] = after[i] = wanted[i] = (unsigned char)(i * 7 + 3);
}

static void is_as_wanted(const char *what, int to, int from)
{
    ck_assert_msg(memcmp(after, wanted, ROOM) == 0, "%s of %zu bytes to %d from %d", what, length, to, from);
}

START_TEST(test_moves)
{
    for (length = 0; length < MOST; length++) {
        for (int from = 100; from < 117; from++) {
            for (int to = 0; to<300; to += to> 80 && to < 220 ? 1 : 37) {
                bool apart = to + (int)length <= from || from + (int)length <= to;
                begin();
                for (size_t i = 0; i < length; i++) wanted[(size_t)to + i] = before[(size_t)from + i];
                ck_assert_ptr_eq(memmove(after + to, after + from, length), after + to);
                is_as_wanted("memmove", to, from);
                if (!apart) continue;
                begin();
                for (size_t i = 0; i < length; i++) wanted[(size_t)to + i] = before[(size_t)from + i];
                ck_assert_ptr_eq(memcpy(after + to, after + from, length), after + to);
                is_as_wanted("memcpy", to, from);
            }
        }
    }
}
END_TEST

START_TEST(test_sets)
{
    for (length = 0; length < MOST; length++) {
        for (int to = 50; to < 67; to++) {
            begin();
            for (size_t i = 0; i < length; i++) wanted[(size_t)to + i] = (unsigned char)(_i + to);
            ck_assert_ptr_eq(memset(after + to, _i + to + 256, length), after + to);
            is_as_wanted("memset", to, 0);
        }
    }
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("memory");
    tcase_add_test(tests, test_moves);
    tcase_add_loop_test(tests, test_sets, 0, 256);
    return unit_run(tests);
}
