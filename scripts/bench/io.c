/* io.c - times pread of four bytes: `io FILE LOOPS`. Prints the least nanoseconds of a call in many
 * short loops, so that other work on the machine does not count. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 2000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    char buf[8] = "abcdefg";
    double best = 1e18;
    int fd = argc == 3 ? open(argv[1], O_RDWR | O_CREAT, 0644) : -1;
    if (fd < 0 || pwrite(fd, buf, 8, 0) != 8) return 1;
    for (int loop = atoi(argv[2]); loop > 0; loop--) {
        double start = now();
        for (int i = 0; i < CALLS; i++)
            if (pread(fd, buf, 4, i & 3) != 4) return 1;
        double time = (now() - start) / CALLS;
        if (time < best) best = time;
    }
    printf("%f\n", best);
    return 0;
}
