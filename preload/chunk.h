/* chunk.h - the shared mapping: its regions, chunks and slots. */
#ifndef TFI_CHUNK_H
#define TFI_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "tfi_trace.h"

struct tfi_thread;
struct tfi_dir;
struct tfi_text;

#define TFI_POOL_BYTES (16u << 20)
#define TFI_SMALL_BYTES 4096u
#define TFI_LARGE_BYTES 65536u
#define TFI_NR_SLOTS 1024u
#define TFI_NR_SMALL 512u

/* The mapping of this process, NULL while asleep. */
extern struct tfi_live *tfi_live;

/* Maps the pool of the trace `name`: beside it in `dir`, in TFI_LIVE_DIR, in /dev/shm, or as private memory, which SIGKILL
 * loses. False if there is no memory at all. */
bool tfi_pool_open(struct tfi_dir *dir, const char *name);

/* Adds the path of its file to the header, or "memory". */
void tfi_pool_place(struct tfi_text *text);

/* Stores the header and makes the mapping valid for readers. */
void tfi_pool_publish(const struct tfi_text *info, const struct tfi_text *schema);

/* True if the mapping is a file, which outlives the process. */
bool tfi_pool_is_file(void);

/* Removes the file; the mapping stays, threads may still be in it. */
void tfi_pool_remove(void);

/* A new serial for a block. */
uint64_t tfi_next_serial(void);

/* Gives the thread's chunk to the writer and leaves it without one. */
void tfi_chunk_close(struct tfi_thread *thread);

/* Makes a chunk free again, after it was appended or counted as lost. */
void tfi_chunk_free(struct tfi_chunk *chunk);

/* A slot, or NULL if all are taken. */
struct tfi_slot *tfi_slot_take(void);
void tfi_slot_free(struct tfi_slot *slot);

#endif
