/* libearly_child.c - its fork handler makes calls on files in the child, before the handlers of libraries loaded earlier. */
#include <pthread.h>
#include <unistd.h>

static void in_child(void)
{
    for (int i = 0; i < 3000; i++) (void)!access("/dev/null", F_OK);
}

__attribute__((constructor)) static void load(void)
{
    pthread_atfork(NULL, NULL, in_child);
}
