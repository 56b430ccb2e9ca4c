/* startup.h - keeps the pieces of a process's start: its interpreter, its imports, the models it loads. */
#ifndef TFI_STARTUP_H
#define TFI_STARTUP_H

#include <stddef.h>
#include <stdint.h>

struct tfi_thread;

/* A piece of the start of a process; pieces of one thread may lie in each other. */
struct tfi_startup {
    const char *name;
    size_t length;
    uint64_t start, end; /* ticks */
    uint64_t own;        /* of these without the pieces inside it */
    uint32_t what;       /* enum tfi_startup_what */
    uint32_t depth;      /* pieces around it */
};

/* Records a piece that is over. While the process is asleep it is kept, and recorded at wake. Any thread. */
void tfi_startup_add(const struct tfi_startup *piece);

/* Writes what was kept. Called at wake. */
void tfi_startup_awake(struct tfi_thread *thread);

#endif
