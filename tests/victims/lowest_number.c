/* lowest_number.c - opens files as programs do that rely on the lowest free number: `lowest_number ROUNDS`.
 *
 * Each round gives all numbers to 99 to files of its own and closes them again, so the library keeps no file under any of
 * these. Many calls between two rounds make it write. Prints how often open() gave another number than the lowest, and
 * exits with 1 if it did.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1, lowest = open("/dev/null", O_RDONLY), others = 0;
    close(lowest);
    for (int round = 0; round < rounds; round++) {
        for (int fd = lowest; fd < 100; fd++) dup2(0, fd);
        for (int fd = lowest; fd < 100; fd++) close(fd);
        for (int call = 0; call < 3000; call++) {
            int fd = open("/dev/null", O_RDONLY);
            others += fd != lowest;
            close(fd);
        }
    }
    printf("%d other numbers\n", others);
    return others != 0;
}
