/* libhooks.c - calls dummy functions in its constructor (1001), in its destructor (1002) and on request.
 *
 * It is not linked with libdummy.so: like a plugin it uses the functions of its process.
 */
#include <unistd.h>

#include "dummy.h"

long hooks_add(long x);

static void say(const char *text, size_t length)
{
    if (write(1, text, length) < 0) _exit(9);
}

__attribute__((constructor)) static void begin(void)
{
    if (dummy_add(1001) == 1002) say("constructor\n", 12);
}

__attribute__((destructor)) static void end(void)
{
    if (dummy_add(1002) == 1003) say("destructor\n", 11);
}

long hooks_add(long x)
{
    return dummy_add(x);
}
