/* preload_log.c - messages that several threads give while the process wakes. */
#include <pthread.h>
#include <string.h>

#include "record/log.h"
#include "unit.h"

#define ROUNDS 1000000

static char text[2][300];
static bool over;
static unsigned torn;

static void *say(void *which)
{
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) tfi_log(TFI_LOG_WARN, "%s", text[(size_t)which]);
    return NULL;
}

static bool take(void *unused, const struct tfi_kept *message)
{
    torn += strcmp(message->text, text[0]) != 0 && strcmp(message->text, text[1]) != 0;
    return !unused;
}

START_TEST(test_said_at_wake)
{
    pthread_t thread[2];
    for (unsigned i = 0; i < 2; i++) memset(text[i], 'a' + (int)i, sizeof text[i] - 1);
    for (size_t i = 0; i < 2; i++) ck_assert_int_eq(pthread_create(&thread[i], NULL, say, (void *)i), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        tfi_log_each(take, NULL);
        tfi_log_restart();
    }
    __atomic_store_n(&over, true, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    ck_assert_uint_eq(torn, 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("log");
    tcase_add_test(tcase, test_said_at_wake);
    tcase_set_timeout(tcase, 60);
    return unit_run(tcase);
}
