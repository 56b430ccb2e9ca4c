/* tables.h - keeps what samples refer to, each once: code objects, texts of frames, stacks. */
#ifndef TFI_SAMPLE_TABLES_H
#define TFI_SAMPLE_TABLES_H

#include <stdbool.h>
#include <stdint.h>

#include "tfi_trace.h"

/* Only the sampler adds. Texts and stacks have numbers from 1 and never change, so any thread may read one whose number it
 * was given. Code objects are only a cache, which is emptied when it is full. */

struct tfi_code {
    uint64_t address;
    uint64_t size;        /* bytes of instructions; 0: unknown */
    uint64_t frame_bytes; /* of a frame of it on the data stack */
    uint64_t lines;       /* its line table */
    uint32_t number;      /* unique */
    int first;            /* line */
    uint32_t prefix;      /* "function\tfile\t" */
    uint32_t prefix_bytes;
    char guard[96]; /* tells it from another one at its address */
};

/* Reads the heads of these code objects in one call and takes in those that are unknown, or are others than before. False if
 * one of them is none; `*news` tells that some were taken in. */
bool tfi_codes_check(const uint64_t *addresses, unsigned count, bool *news);

/* A code object that was checked. */
const struct tfi_code *tfi_code_find(uint64_t address);

/* The text "function\tfile\tline" of a code object's instruction; 0: there is no room. `*news` tells that its line was read. */
uint32_t tfi_code_text(const struct tfi_code *code, int64_t at, bool *news);

/* The number of a stack with these texts, the innermost first; 0: there is no room. */
uint32_t tfi_sample_stack(const uint32_t *texts, uint32_t count);

/* True if the frame belongs to the import system. */
bool tfi_text_is_import(uint32_t text);

const char *tfi_sample_text(uint32_t number, uint32_t *length);
const uint32_t *tfi_sample_frames(uint32_t number, uint32_t *count);

/* Begins all tables anew. The old ones were left half changed, in a child of a bare fork. */
void tfi_sample_tables_lose(void);

/* Numbers are smaller. */
#define TFI_SAMPLE_TEXTS (1u << 17)
#define TFI_SAMPLE_STACKS (1u << 18)

#endif
