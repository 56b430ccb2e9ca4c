/* preload_facts.c - facts that several threads keep while the process wakes. */
#include <pthread.h>
#include <string.h>

#include "base/fmt.h"
#include "base/sys.h"
#include "record/facts.h"
#include "record/pool.h"
#include "record/strings.h"
#include "record/thread.h"
#include "unit.h"

#define ROUNDS 300000

static const char *const keys[] = {"first", "second"};
static char value[2][2][600]; /* by key: a short one and a long one */
static bool over;

static void *keep(void *which)
{
    const size_t k = (size_t)which;
    for (unsigned i = 0; !__atomic_load_n(&over, __ATOMIC_RELAXED); i++)
        tfi_fact_keep(&(struct tfi_fact){keys[k], value[k][i % 2], "test"});
    return NULL;
}

/* Gives names and records a place without a trace. */
static void prepare(struct tfi_thread *t, void **room)
{
    *room = tfi_map(65536);
    ck_assert_ptr_nonnull(*room);
    t->chunk = *room;
    tfi_live = tfi_map(TFI_POOL_BYTES);
    ck_assert_ptr_nonnull(tfi_live);
    ck_assert(tfi_strings_init());
}

START_TEST(test_kept_at_wake)
{
    struct tfi_thread t = {0};
    void *room;
    pthread_t thread[2];
    for (unsigned k = 0; k < 2; k++) {
        memset(value[k][0], 'a' + (int)k, 10);
        memset(value[k][1], 'A' + (int)k, sizeof value[k][1] - 1);
    }
    prepare(&t, &room);
    for (unsigned k = 0; k < 2; k++) tfi_fact_keep(&(struct tfi_fact){keys[k], value[k][0], "test"});
    for (size_t k = 0; k < 2; k++) ck_assert_int_eq(pthread_create(&thread[k], NULL, keep, (void *)k), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        t.next = (uint8_t *)(t.chunk + 1);
        t.limit = (uint8_t *)room + 65536;
        tfi_facts_awake(&t);
    }
    __atomic_store_n(&over, true, __ATOMIC_RELAXED);
    for (unsigned k = 0; k < 2; k++) pthread_join(thread[k], NULL);
    ck_assert_uint_le(tfi_strings_count(), 7); /* the keys, the values and the source */
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("facts");
    tcase_add_test(tests, test_kept_at_wake);
    tcase_set_timeout(tests, 60);
    return unit_run(tests);
}
