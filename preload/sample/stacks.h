/* stacks.h - reads the Python stack of another thread at one moment, as far as it can be proven. */
#ifndef TFI_SAMPLE_STACKS_H
#define TFI_SAMPLE_STACKS_H

#include <stdbool.h>
#include <stdint.h>

/* The global lock of an interpreter, as it was read. */
struct tfi_gil {
    uint64_t address; /* 0: not known */
    uint64_t holder;  /* the thread state that held it last */
    uint64_t switches;
    bool locked;
};
#define TFI_GIL_BYTES 208

struct tfi_stack {
    uint32_t number; /* of tables.h; 0: none */
    uint32_t flags;  /* TFI_SAMPLED_* */
};

/* The bytes of a thread state that are read. */
unsigned tfi_state_bytes(void);

/* Reads the lock of an interpreter; false if it cannot be read. */
bool tfi_gil_read(struct tfi_gil *gil, uint64_t interpreter);

/* Reads a thread's stack. `copy` are the bytes of its state, which were read after `gil`. `*cpu` is the thread's processor
 * time before that, and becomes the one after the reading. `*still` tells that the thread did not run in between. */
void tfi_stack_read(struct tfi_stack *stack, uint64_t state, const char *copy, const struct tfi_gil *gil, uint32_t tid,
                    uint64_t *cpu, bool *still);

#endif
