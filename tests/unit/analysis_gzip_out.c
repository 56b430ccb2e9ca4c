/* analysis_gzip_out.c - gzip files have the bytes that were written, the same file from any number of threads, and the
 * error of a write that failed. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/gzip/gzip_out.h"
#include "base/util.h"
#include "unit.h"

enum { MOST = 9 * GZIP_BLOCK, FILES = 5 };

static char text[MOST];
static unsigned char packed[2][2 * MOST];
static char plain[MOST + 1];

static size_t at_most(size_t limit, size_t drawn)
{
    return drawn < limit ? drawn : limit;
}

/* Words that repeat over long distances, and bytes that no level compresses. */
static void make_text(unsigned seed)
{
    srand(seed);
    for (size_t at = 0; at < MOST;) {
        size_t part = at_most(MOST - at, (size_t)(1 + rand() % 300)), from = at ? (size_t)rand() % at : 0;
        if (at > 1000 && rand() % 10) memmove(text + at, text + (at - from > 40000 ? at - 1000 : from), part);
        else
            for (size_t i = 0; i < part; i++) text[at + i] = (char)rand();
        at += part;
    }
}

static void write_pieces(struct gzip_out *file, const char *bytes, size_t length)
{
    for (size_t part; length; bytes += part, length -= part) {
        part = at_most(length, (size_t)(1 + rand() % (2 * GZIP_BLOCK)));
        ck_assert_int_eq(gzip_out_write(file, bytes, part), 0);
    }
}

/* Returns the size of the file, whose bytes go to `to`. Closes `fd`. */
static size_t bytes_of(int fd, unsigned char *to)
{
    ssize_t length = pread(fd, to, sizeof packed[0], 0);
    ck_assert_int_ge(length, 0);
    close(fd);
    return (size_t)length;
}

static size_t pack(size_t jobs, size_t length, unsigned char *to)
{
    int fd = memfd_create("gzip", MFD_CLOEXEC);
    gzip_out_jobs(jobs);
    struct gzip_out *file = gzip_out_open(dup(fd));
    write_pieces(file, text, length);
    ck_assert_int_eq(gzip_out_close(file), 0);
    return bytes_of(fd, to);
}

/* zlib checks the sum and the length at the end of the member. */
static void check_packed(unsigned char *bytes, size_t length, const char *expected, size_t plain_length)
{
    z_stream z = {.next_in = bytes, .avail_in = (uInt)length, .next_out = (Bytef *)plain, .avail_out = sizeof plain};
    ck_assert_int_eq(inflateInit2(&z, 16 + MAX_WBITS), Z_OK);
    ck_assert_int_eq(inflate(&z, Z_FINISH), Z_STREAM_END);
    ck_assert_uint_eq(z.avail_in, 0);
    ck_assert_uint_eq(z.total_out, plain_length);
    ck_assert_int_eq(memcmp(plain, expected, plain_length), 0);
    inflateEnd(&z);
}

START_TEST(it_inflates_to_what_was_written)
{
    static const size_t threads[] = {2, 3, 7, 0};
    make_text((unsigned)_i);
    size_t border = (size_t)(_i % 9) * GZIP_BLOCK, off = (size_t)rand() % (_i % 2 ? 3 : GZIP_BLOCK);
    size_t length = _i % 4 < 2 ? border + off : border > off ? border - off : off;
    size_t alone = pack(1, length, packed[0]);
    check_packed(packed[0], alone, text, length);
    size_t together = pack(threads[_i % 4], length, packed[1]);
    ck_assert_uint_eq(alone, together);
    ck_assert_int_eq(memcmp(packed[0], packed[1], alone), 0);
}
END_TEST

START_TEST(files_side_by_side_stay_apart)
{
    struct gzip_out *file[FILES];
    int fd[FILES];
    size_t done[FILES] = {0}, length = MOST - 5 * GZIP_BLOCK;
    make_text((unsigned)_i);
    gzip_out_jobs((size_t)_i + 1);
    for (size_t i = 0; i < FILES; i++) {
        fd[i] = memfd_create("gzip", MFD_CLOEXEC);
        file[i] = gzip_out_open(dup(fd[i]));
    }
    for (int turn = 0; turn < 400; turn++) {
        size_t i = (size_t)rand() % FILES, part = at_most(length - done[i], (size_t)rand() % 50000);
        ck_assert_int_eq(gzip_out_write(file[i], text + i * GZIP_BLOCK + done[i], part), 0);
        done[i] += part;
    }
    gzip_out_discard(file[0]);
    close(fd[0]);
    for (size_t i = 1; i < FILES; i++) {
        ck_assert_int_eq(gzip_out_close(file[i]), 0);
        check_packed(packed[0], bytes_of(fd[i], packed[0]), text + i * GZIP_BLOCK, done[i]);
    }
}
END_TEST

/* The other file is whole, although the full disk's blocks stand between its own in the queue. */
START_TEST(an_error_stays_with_its_file)
{
    int fd = memfd_create("gzip", MFD_CLOEXEC), error = 0;
    make_text(1);
    gzip_out_jobs((size_t)_i + 1);
    struct gzip_out *full = gzip_out_open(open("/dev/full", O_WRONLY | O_CLOEXEC)), *good = gzip_out_open(dup(fd));
    for (size_t at = 0; at < MOST; at += GZIP_BLOCK) {
        error = gzip_out_write(full, text + at, GZIP_BLOCK);
        ck_assert_int_eq(gzip_out_write(good, text + at, GZIP_BLOCK), 0);
    }
    ck_assert_int_eq(error, ENOSPC);
    ck_assert_int_eq(gzip_out_close(full), ENOSPC);
    ck_assert_int_eq(gzip_out_close(good), 0);
    check_packed(packed[0], bytes_of(fd, packed[0]), text, MOST);
}
END_TEST

static int threads_now(void)
{
    struct stat status;
    ck_assert_int_eq(stat("/proc/self/task", &status), 0);
    return (int)status.st_nlink - 2;
}

START_TEST(small_files_start_no_thread)
{
    gzip_out_jobs(4);
    struct gzip_out *file = gzip_out_open(open("/dev/null", O_WRONLY | O_CLOEXEC));
    int before = threads_now();
    ck_assert_int_eq(gzip_out_write(file, text, GZIP_BLOCK), 0);
    ck_assert_int_eq(threads_now(), before);
    ck_assert_int_eq(gzip_out_write(file, text, 3 * GZIP_BLOCK), 0);
    ck_assert_int_gt(threads_now(), before);
    ck_assert_int_le(threads_now(), before + 3);
    ck_assert_int_eq(gzip_out_close(file), 0);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("gzip_out");
    tcase_set_timeout(tests, 100);
    tcase_add_loop_test(tests, it_inflates_to_what_was_written, 0, 60);
    tcase_add_loop_test(tests, files_side_by_side_stay_apart, 0, 8);
    tcase_add_loop_test(tests, an_error_stays_with_its_file, 0, 4);
    tcase_add_test(tests, small_files_start_no_thread);
    return unit_run(tests);
}
