/* preload_files.c - a file of ours is written to through no descriptor but its own. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "unit.h"

static struct tfi_dir dir;
static char place[] = "/tmp/preload_files.XXXXXX";

static bool append(struct tfi_file *file, uint64_t *size, const char *text)
{
    struct iovec part = {(void *)text, strlen(text)};
    return tfi_file_append(file, size, &part, 1);
}

/* The background thread that a fork ended knew the file under a number that its successor has for reading. */
START_TEST(test_a_number_that_means_the_file_for_reading)
{
    struct tfi_file file;
    uint64_t size = 0;
    char name[100], text[20] = "";
    ck_assert_ptr_nonnull(mkdtemp(place));
    ck_assert(tfi_dir_make(&dir, place));
    ck_assert(tfi_file_create(&file, &dir, "trace"));
    ck_assert(append(&file, &size, "one "));
    snprintf(name, sizeof name, "%s/trace", place);
    int old = file.fd, reading = open(name, O_RDONLY);
    ck_assert_int_eq(dup2(reading, old), old);
    ck_assert(append(&file, &size, "two"));
    ck_assert_int_eq(pread(reading, text, sizeof text, 0), 7);
    ck_assert_str_eq(text, "one two");
    tfi_file_close(&file);
    ck_assert_int_eq(unlink(name), 0);
    ck_assert_int_eq(rmdir(place), 0);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("files");
    tcase_add_test(tcase, test_a_number_that_means_the_file_for_reading);
    return unit_run(tcase);
}
