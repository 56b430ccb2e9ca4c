/* libframes.c - named functions that call each other and finally the caller's function, and a thread that does so.
 *
 * Each function does some work after its call, so that its frame exists during the call.
 */
#include <pthread.h>
#include <unistd.h>

#define OUT __attribute__((noinline))

OUT int frames_outer(int (*inside)(void));
OUT int frames_middle(int (*inside)(void));
OUT int frames_inner(int (*inside)(void));

int frames_inner(int (*inside)(void))
{
    return inside() + 1;
}

int frames_middle(int (*inside)(void))
{
    return frames_inner(inside) + 10;
}

int frames_outer(int (*inside)(void))
{
    return frames_middle(inside) + 100;
}

static void *call_and_stay(void *inside)
{
    ((int (*)(void))inside)();
    for (;;) pause();
    return NULL;
}

/* Starts a thread that calls the function and then stays in native code for ever. */
OUT int frames_thread(int (*inside)(void));
int frames_thread(int (*inside)(void))
{
    pthread_t thread;
    return pthread_create(&thread, NULL, call_and_stay, (void *)inside);
}
