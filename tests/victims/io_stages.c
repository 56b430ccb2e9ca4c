/* io_stages.c - writes and reads files inside and outside of stages: `io_stages DIRECTORY`. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "../include/tfinject.h"

static int file(const char *directory, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return open(path, O_RDWR | O_CREAT, 0644);
}

int main(int argc, char **argv)
{
    char buf[8];
    if (argc != 2) return 2;
    int inside = file(argv[1], "inside"), outside = file(argv[1], "outside");
    tfi_range_push("step");
    if (write(outside, "abcd", 4) != 4) return 1;
    tfi_range_push("load");
    if (write(inside, "abcd", 4) != 4 || read(inside, buf, 4) != 0) return 1;
    tfi_range_pop();
    if (pread(inside, buf, 4, 0) != 4) return 1;
    tfi_range_pop();
    return close(inside) != 0;
}
