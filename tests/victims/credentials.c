/* credentials.c - changes its groups and its user while it writes files, and prints which ones each of its threads has.
 *
 * Prints one line for each moment: the number of its threads, and their users and groups, each combination once. Without
 * the right to become another user it sets the ones it has.
 */
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOBODY = 65534, WRITES = 20000 };

static void write_much(void)
{
    int fd = open("/dev/null", O_WRONLY);
    for (int i = 0; i < WRITES; i++)
        if (write(fd, "x", 1) != 1) exit(3);
    close(fd);
}

static void print_lines(const char *task, char *seen, size_t room)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/self/task/%.20s/status", task);
    FILE *status = fopen(path, "r");
    while (status && fgets(line, sizeof line, status)) {
        if (strncmp(line, "Uid:", 4) != 0 && strncmp(line, "Gid:", 4) != 0 && strncmp(line, "Groups:", 7) != 0)
            continue;
        if (!strstr(seen, line)) strncat(seen, line, room - strlen(seen) - 1);
    }
    if (status) fclose(status);
}

/* Prints how many different lines all threads together have: three, if they agree. */
static void print_threads(const char *when)
{
    char seen[4096] = "";
    int threads = 0, lines = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.') continue;
        threads++;
        print_lines(task->d_name, seen, sizeof seen);
    }
    closedir(tasks);
    for (const char *c = seen; *c; c++) lines += *c == '\n';
    printf("%s: %d threads, %d lines\n", when, threads, lines);
}

int main(void)
{
    uid_t user = getuid() ? getuid() : NOBODY;
    gid_t group = getuid() ? getgid() : NOBODY;
    write_much();
    print_threads("before");
    if (getuid() == 0 && setgroups(0, NULL) != 0) return 1;
    if (setgid(group) != 0 || setresuid(user, user, user) != 0 || (user == NOBODY && setuid(0) == 0)) return 2;
    print_threads("after");
    write_much();
    print_threads("later");
    return 0;
}
