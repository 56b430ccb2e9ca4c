/* libown_new.c - an operator new and operator delete like those of a program with its own heap.
 *
 * Each block has a mark before it. A pointer without the mark, or the block of another operator new, aborts. The C++
 * runtime's operator delete aborts on a block of ours, because its start is not one that malloc gave.
 */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { HEAD = 16 };
static const uint64_t mark = 0x6f776e5f6e657721u;

static void *give(size_t bytes)
{
    char *block = malloc(bytes + HEAD);
    if (!block) abort();
    *(uint64_t *)block = mark;
    return block + HEAD;
}

static void take(void *memory)
{
    static const char text[] = "own_new: this block is of another operator new\n";
    if (!memory) return;
    char *block = (char *)memory - HEAD;
    if (*(uint64_t *)block != mark) {
        if (write(2, text, sizeof text - 1) < 0) _exit(99);
        abort();
    }
    *(uint64_t *)block = 0;
    free(block);
}

/* operator new, new[], and those that do not throw; operator delete, delete[], and those that get the size. */
void *_Znwm(size_t bytes)
{
    return give(bytes);
}
void *_Znam(size_t bytes)
{
    return give(bytes);
}
void *_ZnwmRKSt9nothrow_t(size_t bytes, const void *tag)
{
    (void)tag;
    return give(bytes);
}
void *_ZnamRKSt9nothrow_t(size_t bytes, const void *tag)
{
    (void)tag;
    return give(bytes);
}
void _ZdlPv(void *memory)
{
    take(memory);
}
void _ZdaPv(void *memory)
{
    take(memory);
}
void _ZdlPvm(void *memory, size_t bytes)
{
    (void)bytes;
    take(memory);
}
void _ZdaPvm(void *memory, size_t bytes)
{
    (void)bytes;
    take(memory);
}
void _ZdlPvRKSt9nothrow_t(void *memory, const void *tag)
{
    (void)tag;
    take(memory);
}
void _ZdaPvRKSt9nothrow_t(void *memory, const void *tag)
{
    (void)tag;
    take(memory);
}
