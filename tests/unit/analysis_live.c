/* analysis_live.c - the live file of a process that ends while it is read, and that another process takes. The linker wraps pread(). */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "read/trace.h"
#include "unit.h"

#define PATH "of.live"
enum { INFO = 4096, STRINGS = 8192, SMALL = 12288, BYTES = 16384 };

static unsigned reads, changes_before; /* 0: never */

/* Makes the file that of the process number `n`: a chunk and a string. */
static void write_file(uint64_t n)
{
    static char all[BYTES];
    struct tfi_live head = {
        .magic = TFI_LIVE_MAGIC, .major = TFI_MAJOR, .minor = TFI_MINOR, .head_bytes = sizeof head, .bytes = BYTES};
    struct tfi_chunk chunk = {.serial = n, .committed = 8, .state = TFI_CHUNK_OPEN};
    struct tfi_rec row = {.kind = 1, .size = 8};
    struct tfi_string string = {1, 4};
    head.info = (struct tfi_region){INFO, 4};
    head.strings = (struct tfi_region){STRINGS, SMALL - STRINGS};
    head.small = (struct tfi_region){SMALL, 1024};
    head.small_bytes = 1024;
    head.strings_used = 16;
    head.serial = head.ticks = n;
    memset(all, 0, sizeof all);
    memcpy(all, &head, sizeof head);
    memcpy(all + INFO, n == 1 ? "a\0001" : "a\0002", 4);
    memcpy(all + STRINGS, &string, sizeof string);
    memcpy(all + STRINGS + sizeof string, n == 1 ? "one " : "two ", 4);
    memcpy(all + SMALL, &chunk, sizeof chunk);
    memcpy(all + SMALL + sizeof chunk, &row, sizeof row);
    int fd = open(PATH, O_WRONLY | O_CREAT, 0600);
    ck_assert_int_eq(write(fd, all, sizeof all), sizeof all);
    close(fd);
}

ssize_t __real_pread(int fd, void *to, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t at);

ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t at)
{
    if (++reads == changes_before) write_file(2);
    return __real_pread(fd, to, bytes, at);
}

/* Returns true if the file was read, and checks that all is of the first process. */
static bool reads_the_first(unsigned before)
{
    char *why;
    write_file(1);
    reads = 0;
    changes_before = before;
    struct live *live = live_read(PATH, FILE_FOUND, &why);
    changes_before = 0;
    ck_assert_ptr_null(why);
    if (!live) return false;
    ck_assert_uint_eq(live->count, 1);
    ck_assert_uint_eq(live->chunk[0].serial, 1);
    ck_assert_str_eq(pairs_get(&live->info, "a"), "1");
    ck_assert_uint_eq(live->strings.count, 1);
    ck_assert_int_eq(memcmp(live->strings.string[0].text, "one ", 4), 0);
    live_free(live);
    return true;
}

START_TEST(test_another_process_takes_the_file)
{
    ck_assert(reads_the_first(0));
    unsigned all = reads;
    ck_assert_uint_gt(all, 4);
    for (unsigned before = 2; before <= all; before++) ck_assert(!reads_the_first(before));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("live");
    tcase_add_test(tcase, test_another_process_takes_the_file);
    return unit_run(tcase);
}
