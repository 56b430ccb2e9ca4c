/* io_plain.c - makes plain POSIX calls on files: `io_plain DIRECTORY`. Exits with the line of the first surprise. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MUST(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) _exit(__LINE__ & 127);                                                                       \
    } while (0)

int main(int argc, char **argv)
{
    char data[600], other[600], buf[64];
    if (argc != 2) return 2;
    snprintf(data, sizeof data, "%s/sub", argv[1]);
    MUST(mkdir(data, 0755) == 0);
    snprintf(data, sizeof data, "%s/sub/data", argv[1]);
    snprintf(other, sizeof other, "%s/sub/other", argv[1]);
    int fd = open(data, O_RDWR | O_CREAT, 0644);
    MUST(write(fd, "hello", 5) == 5 && write(fd, " world", 6) == 6);
    MUST(lseek(fd, 2, SEEK_SET) == 2);
    MUST(read(fd, buf, 4) == 4 && read(fd, buf, 64) == 5 && read(fd, buf, 64) == 0);
    struct iovec parts[2] = {{buf, 3}, {buf + 3, 4}};
    MUST(preadv(fd, parts, 2, 1) == 7 && pwrite(fd, "x", 1, 20) == 1 && pread(fd, buf, 4, 100) == 0);
    MUST(dup2(fd, 100) == 100 && lseek(fd, 0, SEEK_SET) == 0 && read(100, buf, 4) == 4);
    MUST(fsync(fd) == 0 && ftruncate(fd, 8) == 0 && fchmod(fd, 0600) == 0 && close(100) == 0);
    int two = open(other, O_RDWR | O_CREAT | O_APPEND, 0600);
    MUST(write(two, "abc", 3) == 3 && dup2(two, 100) == 100);
    MUST(pread(100, buf, 2, 0) == 2 && close(100) == 0 && close(two) == 0);
    MUST(read(two, buf, 1) == -1 && open(argv[1], O_WRONLY) == -1);
    MUST(rename(other, data) == 0 && unlink(other) == -1 && unlink(data) == 0 && close(fd) == 0);
    snprintf(data, sizeof data, "%s/sub", argv[1]);
    MUST(rmdir(data) == 0);
    return 0;
}
