/* io_hostile.h - says what a call returned, and makes and shows files, for io_hostile.c. */
#ifndef IO_HOSTILE_H
#define IO_HOSTILE_H

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char block[1 << 16];
static void *volatile nowhere = (void *)1, *volatile null; /* volatile: the compiler would warn of their use */
static volatile int negative = -1, enormous = 1 << 20;

static void said(const char *what, long result)
{
    int error = errno;
    printf("%s %ld %s\n", what, result, result < 0 ? strerrorname_np(error) : "");
    errno = 0;
}

static void content(const char *path)
{
    struct stat s;
    unsigned sum = 0;
    int fd = open(path, O_RDONLY);
    ssize_t got, all = 0;
    while ((got = read(fd, block, sizeof block)) > 0) {
        for (ssize_t i = 0; i < got; i++) sum = sum * 31 + (unsigned char)block[i];
        all += got;
    }
    printf("%s: %zd bytes %u, stat %d\n", path, all, sum, stat(path, &s));
    close(fd);
}

static int make(const char *path, const char *text)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(fd, text, strlen(text)) < 0) perror(path);
    return fd;
}

#endif
