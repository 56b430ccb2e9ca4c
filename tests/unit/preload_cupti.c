/* preload_cupti.c - CUPTI's records of each version as bytes, and their conversion; call numbers, verdicts, time units.
 *
 * The test needs no CUPTI: it lays records out in buffers as each version does, and walks through them with the
 * library's own table of sizes.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/config.h"
#include "cupti/client.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/pool.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/stage.h"
#include "unit.h"

static uint8_t buffer[1 << 16];
static size_t used;
static struct tfi_cupti page;

/* Appends a zeroed record of the size that the kind has in the current version. */
static uint8_t *add(uint32_t kind)
{
    uint8_t *record = buffer + used;
    memset(record, 0, 512);
    memcpy(record, &kind, 4);
    used += tfi_record_bytes(kind, tfi_cupti_api.version);
    return record;
}

static void put(uint8_t *record, size_t offset, uint64_t value, size_t bytes)
{
    memcpy(record + offset, &value, bytes);
}

/* Begins a new trace in a directory of its own, with a version of CUPTI that cannot be called. */
static struct tfi_thread *begin(uint32_t version)
{
    page = (struct tfi_cupti){.quiet = 1, .on = 1};
    tfi_cupti = &page;
    tfi_cupti_api.version = version;
    used = 0;
    struct tfi_thread *t = tfi_enter(TFI_WHY_STAGE);
    ck_assert_ptr_nonnull(t);
    tfi_records_restart();
    return t;
}

/* Returns the last record of a kind in the thread's chunk. */
static const void *last(const struct tfi_thread *t, uint16_t kind)
{
    const uint8_t *row = (const uint8_t *)(t->chunk + 1), *end = t->next;
    const void *found = NULL;
    for (; row < end; row += ((const struct tfi_rec *)row)->size)
        if (((const struct tfi_rec *)row)->kind == kind) found = row;
    return found;
}

static uint64_t dropped(int drop)
{
    return tfi_live->drops[drop];
}

static void add_kernel(uint32_t id, const char *name)
{
    uint8_t *k = add(TFI_CUPTI_CONCURRENT_KERNEL);
    put(k, 6, 40, 2);
    put(k, 16, 1000, 8);
    put(k, 24, 1500, 8);
    put(k, 40, 3, 4);
    put(k, 44, 4, 4);
    put(k, 48, 5, 4);
    for (unsigned i = 0; i < 6; i++) put(k, 52 + 4 * i, 10 + i, 4);
    put(k, 76, 111, 4);
    put(k, 80, 222, 4);
    put(k, 92, id, 4);
    put(k, 104, (uintptr_t)name, 8);
    put(k, 120, 800, 8);
    put(k, 128, 900, 8);
    put(k, 144, 77, 8);
    put(k, 156, 6, 4);
}

static const uint32_t versions[] = {18, 20, 21, 24, 26, 28, 130000, 130001, 130100, 130202, 130301, 130401, 140000};

START_TEST(test_kernels)
{
    static const uint32_t sizes[] = {208, 208, 208, 208, 208, 208, 216, 216, 224, 224, 232, 248, 248};
    struct tfi_thread *t = begin(versions[_i]);
    ck_assert_uint_eq(tfi_record_bytes(TFI_CUPTI_CONCURRENT_KERNEL, versions[_i]), sizes[_i]);
    add_kernel(1, "first");
    add_kernel(0xffffffff, "second");
    ck_assert_uint_eq(tfi_record_count(buffer, used), 2);
    tfi_records_convert(t, buffer, used, false, false);
    const struct tfi_rec_kernel *k = last(t, TFI_KIND_kernel);
    ck_assert_ptr_nonnull(k);
    ck_assert_uint_eq(k->name, tfi_string("second", 6));
    ck_assert_uint_eq(k->start, 1000);
    ck_assert_uint_eq(k->duration, 500);
    ck_assert_uint_eq(k->correlation, 0xffffffff);
    ck_assert(k->device == 3 && k->context == 4 && k->stream == 5 && k->registers == 40);
    ck_assert(k->grid_x == 10 && k->grid_y == 11 && k->grid_z == 12);
    ck_assert(k->block_x == 13 && k->block_y == 14 && k->block_z == 15);
    ck_assert(k->static_shared == 111 && k->dynamic_shared == 222 && k->graph == 6 && k->node == 77);
    ck_assert(k->queued == 800 && k->submitted == 900);
    tfi_leave(t);
}
END_TEST

START_TEST(test_names_are_numbers_before_they_die)
{
    char name[] = "short-lived";
    struct tfi_thread *t = begin(130000);
    add_kernel(1, name);
    tfi_records_intern(buffer, used);
    memset(name, '#', sizeof name - 1);
    tfi_records_convert(t, buffer, used, true, false);
    ck_assert_uint_eq(((const struct tfi_rec_kernel *)last(t, TFI_KIND_kernel))->name, tfi_string("short-lived", 11));
    tfi_leave(t);
}
END_TEST

START_TEST(test_copies_sets_and_the_rest)
{
    struct tfi_thread *t = begin(versions[_i]);
    uint8_t *r = add(TFI_CUPTI_MEMCPY);
    put(r, 4, 2, 1), put(r, 5, 3, 1), put(r, 6, 1, 1), put(r, 8, 4096, 8), put(r, 16, 10, 8), put(r, 24, 30, 8);
    put(r, 32, 1, 4), put(r, 36, 2, 4), put(r, 40, 3, 4), put(r, 44, 44, 4), put(r, 64, 9, 8), put(r, 72, 8, 4);
    r = add(TFI_CUPTI_MEMSET);
    put(r, 4, 0xab, 4), put(r, 8, 64, 8), put(r, 16, 40, 8), put(r, 24, 41, 8), put(r, 44, 45, 4), put(r, 72, 7, 4);
    r = add(TFI_CUPTI_SYNCHRONIZATION);
    put(r, 4, 3, 4), put(r, 8, 50, 8), put(r, 16, 60, 8), put(r, 24, 46, 4), put(r, 28, 2, 4), put(r, 32, 3, 4),
        put(r, 36, 4, 4);
    r = add(TFI_CUPTI_OVERHEAD);
    put(r, 4, 65536, 4), put(r, 12, 0x1122334455667788, 8), put(r, 24, 70, 8), put(r, 32, 75, 8);
    r = add(TFI_CUPTI_GRAPH_TRACE);
    put(r, 4, 47, 4), put(r, 8, 80, 8), put(r, 16, 99, 8), put(r, 24, 1, 4), put(r, 28, 5, 4), put(r, 32, 2, 4),
        put(r, 36, 3, 4);
    add(TFI_CUPTI_EXTERNAL_CORRELATION);
    ck_assert_uint_eq(tfi_record_count(buffer, used), 6);
    tfi_records_convert(t, buffer, used, false, false);
    const struct tfi_rec_copy *c = last(t, TFI_KIND_copy);
    ck_assert(c->direction == 2 && c->source_kind == 3 && c->destination_kind == 1 && c->bytes == 4096 &&
              c->start == 10);
    ck_assert(c->duration == 20 && c->device == 1 && c->context == 2 && c->stream == 3 && c->correlation == 44);
    ck_assert(c->node == 9 && c->graph == 8 && c->peer == -1);
    const struct tfi_rec_set *s = last(t, TFI_KIND_set);
    ck_assert(s->value == 0xab && s->bytes == 64 && s->start == 40 && s->duration == 1 && s->correlation == 45 &&
              s->graph == 7);
    const struct tfi_rec_sync *y = last(t, TFI_KIND_sync);
    ck_assert(y->type == 3 && y->duration == 10 && y->correlation == 46 && y->context == 2 && y->stream == 3 &&
              y->event == 4);
    const struct tfi_rec_overhead *o = last(t, TFI_KIND_overhead);
    ck_assert(o->type == 65536 && o->start == 70 && o->duration == 5 && o->object == 0x1122334455667788);
    const struct tfi_rec_graph_launch *g = last(t, TFI_KIND_graph_launch);
    ck_assert(g->graph == 5 && g->start == 80 && g->duration == 19 && g->correlation == 47 && g->stream == 3);
    tfi_leave(t);
}
END_TEST

START_TEST(test_peer_copies)
{
    struct tfi_thread *t = begin(versions[_i]);
    uint8_t *r = add(TFI_CUPTI_MEMCPY2);
    put(r, 4, 10, 1), put(r, 8, 512, 8), put(r, 16, 10, 8), put(r, 24, 30, 8), put(r, 32, 1, 4), put(r, 44, 1, 4);
    put(r, 52, 6, 4), put(r, 60, 48, 4), put(r, 72, 9, 8), put(r, 80, 8, 4);
    tfi_records_convert(t, buffer, used, false, false);
    const struct tfi_rec_copy *c = last(t, TFI_KIND_copy);
    ck_assert(c->direction == 10 && c->bytes == 512 && c->device == 1 && c->peer == 6 && c->correlation == 48);
    ck_assert(c->node == 9 && c->graph == 8 && c->duration == 20);
    tfi_leave(t);
}
END_TEST

START_TEST(test_records_without_times_are_counted)
{
    struct tfi_thread *t = begin(130000);
    uint64_t before = dropped(TFI_DROP_DEVICE_TIMELESS);
    for (int i = 0; i < 3; i++) add_kernel(1, "k");
    put(buffer, 16, 0, 8);
    put(buffer + 216, 24, 0, 8);
    put(buffer + 432, 24, 999, 8);
    tfi_records_convert(t, buffer, used, false, false);
    ck_assert_uint_eq(dropped(TFI_DROP_DEVICE_TIMELESS) - before, 3);
    tfi_leave(t);
}
END_TEST

/* Work is counted and left out if it starts a second or more before the call that launched it. If that is not known yet,
 * an earlier call counts. */
START_TEST(test_work_before_its_own_call_is_counted)
{
    struct tfi_thread *t = begin(130000);
    uint64_t before = dropped(TFI_DROP_DEVICE_TIMELESS);
    static const uint32_t ids[] = {12, 13, 12, 11};
    for (unsigned i = 0; i < 4; i++) {
        add_kernel(ids[i], i < 2 ? "early" : "late");
        put(buffer + 216 * i, 16, i == 2 ? 4500000000 : 3500000000, 8);
        put(buffer + 216 * i, 24, 4500000001, 8);
    }
    uint8_t *r = add(TFI_CUPTI_RUNTIME);
    put(r, 4, 211, 4), put(r, 8, 5000000000, 8), put(r, 16, 5000000010, 8), put(r, 28, 0xabcd, 4), put(r, 32, 12, 4);
    tfi_records_convert(t, buffer, used, false, false);
    ck_assert_uint_eq(dropped(TFI_DROP_DEVICE_TIMELESS) - before, 2);
    ck_assert_uint_eq(((const struct tfi_rec_kernel *)last(t, TFI_KIND_kernel))->correlation, 11);
    tfi_leave(t);
}
END_TEST

/* Cuts a buffer at every byte and adds unknown kinds: the walk never reads beyond the end. */
START_TEST(test_damaged_buffers)
{
    struct tfi_thread *t = begin(130000);
    add_kernel(1, "k");
    size_t size = used;
    for (size_t cut = 1; cut < size; cut++) {
        uint8_t *exact = malloc(cut);
        uint64_t before = dropped(TFI_DROP_DEVICE_UNREAD);
        memcpy(exact, buffer, cut);
        ck_assert_uint_eq(tfi_record_count(exact, cut), 0);
        tfi_records_convert(t, exact, cut, false, false);
        ck_assert_uint_eq(dropped(TFI_DROP_DEVICE_UNREAD) - before, 1);
        free(exact);
    }
    put(buffer, 0, 63, 4);
    ck_assert_uint_eq(tfi_record_count(buffer, used), 0);
    put(buffer, 0, 0xfffffff0, 4);
    ck_assert_uint_eq(tfi_record_count(buffer, used), 0);
    ck_assert_uint_eq(tfi_record_count(NULL, 0), 0);
    tfi_leave(t);
}
END_TEST

/* Requests 32 buffers and 64 areas, all different. Then an older release gets one again, and a newer one gets none. */
START_TEST(test_requests)
{
    enum { ALL = 32 + 64 };
    uint8_t *given[ALL], *more;
    size_t size, max;
    begin(130001);
    ck_assert(tfi_buffers_init(NULL));
    for (int i = 0; i < ALL; i++) {
        tfi_buffers_request(&given[i], &size, &max);
        ck_assert_ptr_nonnull(given[i]);
        ck_assert_uint_eq(max, 0);
        for (int j = 0; j < i; j++) ck_assert_ptr_ne(given[i], given[j]);
    }
    ck_assert_uint_eq(tfi_buffers_out(), 32);
    tfi_buffers_request(&more, &size, &max);
    ck_assert_ptr_null(more);
    tfi_cupti_api.version = 26;
    tfi_buffers_request(&more, &size, &max);
    ck_assert_ptr_eq(more, given[ALL - 1]);
    for (int i = 0; i < ALL; i++) tfi_buffers_complete(NULL, 0, given[i], 0, 0);
    ck_assert_uint_eq(tfi_buffers_out(), 0);
    tfi_buffers_request(&more, &size, &max);
    ck_assert_uint_eq(size, 2 << 20);
}
END_TEST

START_TEST(test_calls)
{
    struct tfi_thread *t = begin(130000);
    uint8_t *r = add(TFI_CUPTI_DRIVER);
    put(r, 4, 307, 4), put(r, 8, 5000, 8), put(r, 16, 5100, 8), put(r, 28, 0xabcd, 4), put(r, 32, 12, 4);
    r = add(TFI_CUPTI_RUNTIME);
    put(r, 4, 211, 4), put(r, 8, 4900, 8), put(r, 16, 5200, 8), put(r, 28, 0xabcd, 4), put(r, 32, 12, 4);
    r = add(TFI_CUPTI_RUNTIME); /* cudaGetDevice: not recorded */
    put(r, 4, 17, 4), put(r, 8, 4900, 8), put(r, 16, 5200, 8), put(r, 32, 13, 4);
    tfi_records_convert(t, buffer, used, false, false);
    const struct tfi_rec_correlation *c = last(t, TFI_KIND_correlation);
    size_t length;
    const char *function = tfi_string_text(c->func, &length);
    ck_assert(c->correlation == 12 && c->thread == 0xabcd);
    ck_assert_ptr_nonnull(memmem(function, length,
                                 "cudart\x1fLAUNCH\x1f"
                                 "cudaLaunchKernel\x1f",
                                 30));
    tfi_leave(t);
}
END_TEST

START_TEST(test_call_numbers)
{
    for (unsigned i = 0; i < tfi_cupti_nr_calls; i++)
        ck_assert_int_eq(tfi_cupti_call_index(tfi_cupti_calls[i].domain, tfi_cupti_calls[i].number), (int)i);
    ck_assert_int_eq(tfi_cupti_call_index(TFI_CUPTI_RUNTIME, 17), -1);
    ck_assert_int_eq(tfi_cupti_call_index(TFI_CUPTI_DRIVER, 0), -1);
    ck_assert_int_eq(tfi_cupti_call_index(TFI_CUPTI_DRIVER, 100000), -1);
}
END_TEST

/* ---- selection ---- */

static struct tfi_slot slot;
static struct tfi_thread fake = {.slot = &slot};

static void now_in(uint32_t thread, uint32_t stages, uint32_t selected)
{
    slot.pthread = 0x7f0000000000 | thread;
    fake.stages = stages;
    fake.selected = selected;
    tfi_select_note(&fake);
}

START_TEST(test_verdicts)
{
    tfi_config.select = TFI_SELECT_NAMES;
    ck_assert(tfi_select_init());
    uint64_t t0 = tfi_ticks();
    ck_assert_int_eq(tfi_select_call(1, 0x1000, t0), TFI_VERDICT_UNKNOWN); /* no verdict has been set yet */
    now_in(0x1000, 1, 0);
    uint64_t t1 = tfi_ticks();
    now_in(0x1000, 2, 1);
    uint64_t t2 = tfi_ticks();
    now_in(0x1000, 1, 0);
    uint64_t t3 = tfi_ticks();
    now_in(0x1000, 0, 0);
    uint64_t t4 = tfi_ticks();
    ck_assert_int_eq(tfi_select_call(2, 0x1000, t0), TFI_VERDICT_OUTSIDE);
    ck_assert_int_eq(tfi_select_call(3, 0x1000, t1), TFI_VERDICT_OUTSIDE);
    ck_assert_int_eq(tfi_select_call(4, 0x1000, t2), TFI_VERDICT_INSIDE);
    ck_assert_int_eq(tfi_select_call(5, 0x1000, t3), TFI_VERDICT_OUTSIDE);
    ck_assert_int_eq(tfi_select_call(6, 0x1000, t4), TFI_VERDICT_OUTSIDE);
    ck_assert_int_eq(tfi_select_call(7, 0x2000, t2),
                     TFI_VERDICT_UNKNOWN); /* a thread without stages, next to a selected one */
    ck_assert_int_eq(tfi_select_call(8, 0x2000, t3), TFI_VERDICT_OUTSIDE);
    ck_assert_int_eq(tfi_select_of(4), TFI_VERDICT_INSIDE);
    ck_assert_int_eq(tfi_select_of(5), TFI_VERDICT_OUTSIDE);
    ck_assert_int_eq(tfi_select_of(4 + (1u << 20)), TFI_VERDICT_UNKNOWN);
    tfi_select_call(4 + (1u << 20), 0x1000, t1);
    ck_assert_int_eq(tfi_select_of(4), TFI_VERDICT_UNKNOWN); /* no longer in the table, which holds the last million */
    ck_assert_int_eq(tfi_select_of(0), TFI_VERDICT_UNKNOWN);
    for (int i = 0; i < 1000; i++) now_in(0x1000, 1, i & 1);
    ck_assert_int_eq(tfi_select_call(9, 0x1000, t2), TFI_VERDICT_UNKNOWN); /* too old */
}
END_TEST

START_TEST(test_records_outside_are_left_out)
{
    struct tfi_thread *t = begin(130000);
    uint64_t before = dropped(TFI_DROP_DEVICE_OUTSIDE);
    tfi_config.select = TFI_SELECT_NAMES;
    ck_assert(tfi_select_init());
    now_in(0x1000, 1, 0);
    tfi_select_call(20, 0x1000, tfi_ticks());
    now_in(0x1000, 1, 1);
    tfi_select_call(21, 0x1000, tfi_ticks());
    add_kernel(21, "inside");
    add_kernel(22, "unknown");
    add_kernel(20, "outside");
    tfi_records_convert(t, buffer, used, false, false);
    ck_assert_uint_eq(dropped(TFI_DROP_DEVICE_OUTSIDE) - before, 1);
    ck_assert_uint_eq(((const struct tfi_rec_kernel *)last(t, TFI_KIND_kernel))->correlation, 22);
    tfi_config.select = TFI_SELECT_ALL;
    tfi_leave(t);
}
END_TEST

/* ---- units ---- */

static uint64_t thirds(void)
{
    return tfi_realtime_ns() / 3;
}

/* Another client's clock: values of both units become nanoseconds. */
START_TEST(test_other_unit)
{
    uint64_t ns = tfi_realtime_ns();
    ck_assert_uint_eq(tfi_cupti_clock_ns(ns), ns);
    tfi_cupti_clock_foreign(thirds);
    usleep(30000);
    tfi_cupti_clock_refresh();
    uint64_t value = tfi_cupti_clock_ns(ns / 3);
    ck_assert_uint_eq(tfi_cupti_clock_ns(ns), ns);
    ck_assert_uint_lt(value > ns ? value - ns : ns - value, 50000);
    ck_assert_uint_eq(tfi_cupti_clock_ns(0), 0);
}
END_TEST

/* ---- device time by stage ---- */

/* CUPTI starts while another thread of the program is making its first record. */
START_TEST(test_a_thread_that_is_beginning)
{
    begin(versions[0]);
    struct tfi_thread *beginning = tfi_state_take();
    ck_assert_ptr_nonnull(beginning);
    ck_assert_ptr_null(beginning->slot);
    tfi_sums_begin();
    ck_assert(tfi_sums_on);
    ck_assert_ptr_null(beginning->ring);
}
END_TEST

int main(void)
{
    char dir[] = "/tmp/preload_cupti.XXXXXX", command[64];
    if (!mkdtemp(dir)) return 1;
    tfi_config.output_dir = dir; /* the library read the environment before main */
    TCase *tests = tcase_create("cupti");
    int count = (int)TFI_COUNT(versions);
    tcase_add_loop_test(tests, test_kernels, 0, count);
    tcase_add_loop_test(tests, test_copies_sets_and_the_rest, 0, count);
    tcase_add_loop_test(tests, test_peer_copies, 0, count);
    tcase_add_test(tests, test_names_are_numbers_before_they_die);
    tcase_add_test(tests, test_records_without_times_are_counted);
    tcase_add_test(tests, test_work_before_its_own_call_is_counted);
    tcase_add_test(tests, test_damaged_buffers);
    tcase_add_test(tests, test_requests);
    tcase_add_test(tests, test_calls);
    tcase_add_test(tests, test_call_numbers);
    tcase_add_test(tests, test_verdicts);
    tcase_add_test(tests, test_records_outside_are_left_out);
    tcase_add_test(tests, test_other_unit);
    tcase_add_test(tests, test_a_thread_that_is_beginning);
    int failed = unit_run(tests);
    if (strlen(dir) < sizeof command - 8) {
        strcpy(command, "rm -rf ");
        strcat(command, dir);
        if (system(command) != 0) failed = 1;
    }
    return failed;
}
