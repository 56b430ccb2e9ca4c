/* analysis_confined.c - a confined process reads below its directories alone, writes nothing and runs no program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_in.h"
#include "base/file_out.h"
#include "read/ncu/program_in.h"
#include "unit.h"

static char inside[] = "/tmp/confined-in-XXXXXX", outside[] = "/tmp/confined-out-XXXXXX";

static bool put_file(const char *directory)
{
    char *path = string_format("%s/file", directory);
    FILE *file = fopen(path, "w");
    free(path);
    return file && fclose(file) == 0;
}

static bool opens(const char *directory, const char *name)
{
    struct stat status;
    const char *why = "";
    char *path = string_format("%s/%s", directory, name);
    int fd = file_open(path, FILE_NAMED, &status, &why);
    if (fd >= 0) close(fd);
    free(path);
    return fd >= 0;
}

static bool lists(const char *directory)
{
    struct dirent **entries;
    int count = file_list(directory, NULL, &entries);
    for (int i = 0; i < count; i++) free(entries[i]);
    free(count >= 0 ? entries : NULL);
    return count >= 0;
}

START_TEST(only_what_lies_below)
{
    const char *const roots[] = {inside};
    char *link = string_format("%s/link", inside), *near = string_format("%snear", inside);
    ck_assert(opens(outside, "file") && lists(outside));
    ck_assert_int_eq(symlink(outside, link), 0);
    file_confine(roots, 1);
    ck_assert(opens(inside, "file") && lists(inside));
    ck_assert(!opens(outside, "file") && !opens(inside, "link/file") && !lists(outside) && !lists(link));
    ck_assert(path_is_below(inside, inside) && path_is_below(link, inside) && !path_is_below(near, inside) &&
              path_is_below(link, "/"));
    ck_assert_int_eq(unlink(link), 0);
    free(link);
    free(near);
}
END_TEST

START_TEST(nothing_is_written)
{
    const char *const roots[] = {inside};
    const char *why = NULL;
    char *path = string_format("%s/new", inside), *reason = NULL;
    char *const program[] = {"touch", path, NULL};
    struct file_out file;
    size_t length;
    file_confine(roots, 1);
    ck_assert(!file_create(&file, path, &why) && strstr(why, "writes no file"));
    file_drop(&file);
    ck_assert_int_lt(directory_make(path, &why), 0);
    ck_assert_ptr_null(program_output(program, 100, &length, &reason));
    ck_assert(strstr(reason, "runs no program"));
    ck_assert_int_ne(access(path, F_OK), 0);
    free(reason);
    free(path);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("confined");
    tcase_add_test(tests, only_what_lies_below);
    tcase_add_test(tests, nothing_is_written);
    if (!mkdtemp(inside) || !mkdtemp(outside) || !put_file(inside) || !put_file(outside)) return 1;
    int failed = unit_run(tests);
    char *command = string_format("rm -r %s %s", inside, outside);
    failed |= system(command) != 0;
    free(command);
    return failed;
}
