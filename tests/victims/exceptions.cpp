// exceptions.cpp - leaves functions of libdummy, and their wrappers, in the ways of C++; the argument selects one.
//
// caught: a thousand exceptions through one call; nested: through twelve, caught half-way and at the top; exit: threads
// that end inside a call; terminate and uncaught: no handler; killed: one exception, one call, then SIGKILL.
#include <pthread.h>
#include <signal.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "dummy.h"
#include "tfinject.h"

static int destroyed;

struct counted {
    ~counted()
    {
        destroyed++;
    }
};

static long thrower(long x)
{
    counted here;
    throw std::runtime_error(x % 2 ? "odd" : "even");
}

static long caught(long x)
{
    tfi::range stage("attempt");
    try {
        return dummy_call(thrower, x);
    } catch (const std::runtime_error &e) {
        return dummy_add((long)strlen(e.what()));
    }
}

// Recurses down to 0 and throws there. Level 6 catches the exception and throws another.
static long deeper(long x)
{
    counted here;
    if (x == 0) return thrower(1);
    try {
        return dummy_call(deeper, x - 1);
    } catch (const std::runtime_error &e) {
        if (x != 6) throw;
        throw std::logic_error(e.what());
    }
}

static long nested(long x)
{
    try {
        return dummy_call(deeper, x);
    } catch (const std::logic_error &e) {
        return dummy_add((long)strlen(e.what()));
    }
}

static long ends_thread(long x)
{
    counted here;
    pthread_exit((void *)x);
}

static void *in_thread(void *x)
{
    tfi::range stage("thread");
    return (void *)dummy_call(ends_thread, (long)x);
}

static long exits(long x)
{
    pthread_t thread;
    void *result = nullptr;
    if (pthread_create(&thread, nullptr, in_thread, (void *)x) != 0) return -1;
    pthread_join(thread, &result);
    return dummy_add((long)result);
}

static long closed(long x) noexcept
{
    return dummy_call(thrower, x);
}

int main(int argc, char **argv)
{
    long sum = 0;
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "caught"))
        for (long i = 0; i < 1000; i++) sum += caught(i);
    else if (!strcmp(mode, "nested"))
        for (long i = 0; i < 100; i++) sum += nested(12);
    else if (!strcmp(mode, "exit"))
        for (long i = 0; i < 100; i++) sum += exits(i);
    else if (!strcmp(mode, "terminate")) sum = closed(1);
    else if (!strcmp(mode, "uncaught")) sum = dummy_call(thrower, 1);
    else if (!strcmp(mode, "killed")) sum = caught(0), raise(SIGKILL);
    printf("%ld, %d destroyed\n", sum, destroyed);
    return 0;
}
