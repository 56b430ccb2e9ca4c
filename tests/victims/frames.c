/* frames.c - opens a range inside the functions of libframes.so, in the main thread, another thread or a child of fork.
 *
 * frames [thread|fork]. A static function exports no name: the trace shows it as its place in the program.
 */
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../include/tfinject.h"

int frames_outer(int (*inside)(void));

static int inside(void)
{
    (void)tfi_range_push("in frames");
    (void)tfi_range_pop();
    return 0;
}

static void *other(void *unused)
{
    return frames_outer(inside) == 111 ? NULL : unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int status = 0;
    if (argc > 1 && strcmp(argv[1], "thread") == 0)
        return pthread_create(&thread, NULL, other, &status) || pthread_join(thread, NULL);
    if (argc > 1 && strcmp(argv[1], "fork") == 0) {
        (void)frames_outer(inside);
        pid_t child = fork();
        if (child == 0) _exit(frames_outer(inside) != 111);
        return waitpid(child, &status, 0) != child || status;
    }
    return frames_outer(inside) != 111;
}
