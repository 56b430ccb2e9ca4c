/* pool.h - keeps the shared mapping: its regions, chunks and slots. */
#ifndef TFI_POOL_H
#define TFI_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "tfi_trace.h"

struct tfi_dir;
struct tfi_text;

#define TFI_POOL_BYTES (16u << 20)
#define TFI_SMALL_BYTES 4096u
#define TFI_LARGE_BYTES 65536u
#define TFI_NR_SLOTS 1024u
#define TFI_NR_SMALL 512u

/* The mapping of this process, NULL while asleep. */
extern struct tfi_live *tfi_live;

/* Maps the pool of the trace `name`. Tries in order: `live_dir` if not NULL, beside the trace in `dir`, /dev/shm, and
 * private memory, which SIGKILL loses. False if there is no memory at all. */
bool tfi_pool_open(struct tfi_dir *dir, const char *name, const char *live_dir);

/* Adds the path of the pool's file to the header, or "memory". */
void tfi_pool_place(struct tfi_text *text);

/* Stores the header and makes the mapping valid for readers. */
void tfi_pool_publish(const struct tfi_text *info);

/* True if the chunk lies in a file, which outlives the process. */
bool tfi_pool_lasts(const struct tfi_chunk *chunk);

/* Removes the file, or leaves it to the next process of a run that goes on; the mapping stays, because threads may still
 * use it. */
void tfi_pool_remove(bool run_goes_on);
/* Removes the files that processes have left in the run directory. */
void tfi_pool_remove_left(struct tfi_dir *dir);

/* A new serial for a block. */
uint64_t tfi_next_serial(void);

/* Takes a free chunk, a large one if `big` is true and one is free; NULL if there is no memory. */
struct tfi_chunk *tfi_pool_take(bool big);

/* The chunk's size. The file may have been changed by others, so nothing in it says where memory ends. */
uint32_t tfi_pool_bytes(const struct tfi_chunk *chunk);

/* The region of strings, and how much of it is used. */
char *tfi_pool_strings(void);
uint64_t tfi_pool_strings_used(void);
void tfi_pool_use_strings(uint64_t bytes);

/* True if the region of strings has room for `bytes` in all. Only under the lock of the strings. */
bool tfi_pool_has_strings(uint64_t bytes);

/* Makes a chunk free again, after it was appended or counted as lost. */
void tfi_pool_give(struct tfi_chunk *chunk);

/* Takes a slot; NULL if all are taken. */
struct tfi_slot *tfi_slot_take(void);
void tfi_slot_free(struct tfi_slot *slot);

#endif
