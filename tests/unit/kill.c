/* kill.c - SIGKILL at random moments: the trace has every call that had returned, with its arguments, exactly once.
 *
 * Runs tests/victims/busy.c under the test build of the library, kills it after at most 50 ms and reads both files with
 * the analyser's own reader. Calls of a thread count from 1, so the records must be 1 to n without a gap. n is the
 * victim's own count, or one more if a call had returned into the wrapper but not into the program.
 */
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "read/trace.h"
#include "unit.h"

#define THREADS 4

struct seen {
    uint64_t tid;
    uint64_t finished; /* the victim's own count */
    uint64_t records;
    uint64_t highest;
    uint8_t *bits;
    size_t size;
};

static char dir[64], busy[4096], library[4096];

/* Checks the arguments of a call; returns its number n, 0 if they are wrong. */
static uint64_t number_of(const char *func, const uint64_t *args, size_t count, uint64_t thread)
{
    uint64_t n;
    if (strstr(func, "\x1f"
                     "dummy_add\x1f")) {
        n = count == 1 ? args[0] : 0;
        return n % 3 == 0 ? n : 0;
    }
    if (strstr(func, "\x1f"
                     "dummy_store\x1f")) {
        n = count == 2 && args[0] == args[1] ? args[1] : 0;
        return n % 3 == 1 ? n : 0;
    }
    if (!strstr(func, "\x1f"
                      "dummy_many\x1f") ||
        count != 6)
        return 0;
    n = args[1];
    return n % 3 == 2 && args[0] == thread && !args[2] && !args[3] && args[4] == 2 * n && args[5] == (uint8_t)n ? n : 0;
}

static void mark(struct seen *seen, uint64_t n)
{
    /* A passed assertion costs Check a write, which is too slow for millions of calls. */
    if (n == 0 || n >= 1u << 30) ck_abort_msg("a call with wrong arguments");
    if (n / 8 >= seen->size) {
        size_t size = (n / 8 + 1) * 2;
        seen->bits = realloc(seen->bits, size);
        memset(seen->bits + seen->size, 0, size - seen->size);
        seen->size = size;
    }
    if (seen->bits[n / 8] >> n % 8 & 1) ck_abort_msg("call %lu appears twice", (unsigned long)n);
    seen->bits[n / 8] |= (uint8_t)(1 << n % 8);
    seen->records++;
    if (n > seen->highest) seen->highest = n;
}

static void read_group(struct reader *reader, const struct piece *piece, struct group *group, struct seen *seen)
{
    const uint32_t *first;
    if (group->number != TFI_KIND_call) return;
    size_t thread = 0;
    while (thread < THREADS && seen[thread].tid != piece->tid) thread++;
    ck_assert_msg(thread < THREADS, "calls of an unknown thread");
    const uint64_t *func = group_own(&reader->decoder, group, COL_call_func);
    const uint64_t *args = group_list(&reader->decoder, group, group->kind->own[COL_call_args], &first);
    ck_assert(func && args);
    for (uint32_t i = 0; i < group->count; i++) {
        const struct string *text = strings_get(&reader->trace->strings, func[i]);
        if (!text) ck_abort_msg("a function without description");
        mark(&seen[thread], number_of(text->text, args + first[i], first[i + 1] - first[i], thread));
    }
}

static void read_trace(const char *path, struct seen *seen)
{
    char live[4200];
    struct trace trace = {0};
    struct notes notes = {0};
    struct chunk chunk;
    const struct piece *piece;
    uint64_t drops[TFI_MAX_DROPS] = {0};
    snprintf(live, sizeof live, "%s.live", path);
    /* The kill came while the library opened the file: it is not readable, and no call may have returned. */
    if (!trace_open(&trace, path, access(live, R_OK) == 0 ? live : NULL, FILE_NAMED, &notes)) {
        trace_close(&trace);
        notes_free(&notes);
        return;
    }
    struct reader reader = {.trace = &trace};
    while ((piece = reader_next(&reader, &chunk)) != NULL)
        for (unsigned g = 0; g < chunk.groups; g++) read_group(&reader, piece, &chunk.group[g], seen);
    trace_drops(&trace, drops);
    uint64_t lost = trace_judge(&trace, drops, &notes);
    for (size_t i = 0; lost && i < notes.count; i++) fprintf(stderr, "%s: %s\n", path, notes.note[i].text);
    ck_assert_msg(lost == 0, "%lu records lost, see above; %s is kept", (unsigned long)lost, path);
    reader_free(&reader);
    trace_close(&trace);
    notes_free(&notes);
}

static void kill_once(unsigned microseconds)
{
    char counters[256], pattern[256];
    glob_t found = {0};
    int status;
    snprintf(counters, sizeof counters, "%s/counters", dir);
    snprintf(pattern, sizeof pattern, "%s/run/*.tfr", dir);
    pid_t pid = fork();
    if (pid == 0) {
        setenv("LD_PRELOAD", library, 1);
        execl(busy, busy, counters, (char *)NULL);
        _exit(127);
    }
    struct timespec pause = {.tv_nsec = (long)microseconds * 1000};
    nanosleep(&pause, NULL);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFSIGNALED(status), "%s did not run", busy);
    struct seen seen[THREADS] = {{0}};
    int fd = open(counters, O_RDWR);
    const uint64_t *page = fd < 0 ? MAP_FAILED : mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    struct stat st;
    bool counted = page != MAP_FAILED && fstat(fd, &st) == 0 && st.st_size == 4096;
    for (size_t i = 0; counted && i < THREADS; i++) seen[i].tid = page[2 * i], seen[i].finished = page[2 * i + 1];
    if (glob(pattern, 0, NULL, &found) == 0) read_trace(found.gl_pathv[0], seen);
    globfree(&found);
    for (size_t i = 0; i < THREADS; i++) {
        ck_assert_msg(seen[i].records == seen[i].highest, "thread %zu: a gap below call %lu", i,
                      (unsigned long)seen[i].highest);
        ck_assert_msg(seen[i].records >= seen[i].finished, "thread %zu: %lu of %lu calls are missing", i,
                      (unsigned long)(seen[i].finished - seen[i].records), (unsigned long)seen[i].finished);
        ck_assert_msg(seen[i].records <= seen[i].finished + 1, "thread %zu: more calls than were made", i);
        free(seen[i].bits);
    }
    if (page != MAP_FAILED) munmap((void *)page, 4096);
    if (fd >= 0) close(fd);
    char clean[512];
    snprintf(clean, sizeof clean, "rm -rf %s/run %s/counters", dir, dir);
    ck_assert_int_eq(system(clean), 0);
}

static void set_up(void)
{
    const char *tests = getenv("TFI_TEST_DIR");
    ck_assert_msg(tests != NULL, "TFI_TEST_DIR is not set");
    snprintf(dir, sizeof dir, "/tmp/tfi-kill-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(busy, sizeof busy, "%s/../build/victims/busy", tests);
    snprintf(library, sizeof library, "%s/../build/test/libtfinject.so", tests);
    ck_assert_msg(access(busy, X_OK) == 0 && access(library, R_OK) == 0, "%s or %s is not built", busy, library);
    unsetenv("TFI_TEST_DIR"); /* the library would warn about an unknown variable */
    char run[80];
    snprintf(run, sizeof run, "%s/run", dir);
    setenv("TFI_OUTPUT_DIR", run, 1);
    srandom((unsigned)time(NULL));
}

static void tear_down(void)
{
    rmdir(dir);
}

START_TEST(every_finished_call_survives_sigkill)
{
    unsigned kills = getenv("KILLS") ? (unsigned)atoi(getenv("KILLS")) : 80;
    for (unsigned i = 0; i < kills; i++) kill_once(1000 + (unsigned)random() % 49000);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("kill");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, every_finished_call_survives_sigkill);
    return unit_run(tcase);
}
