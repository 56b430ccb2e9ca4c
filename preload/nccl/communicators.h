/* communicators.h - knows the communicators of this process: their group, rank, size, and how far they have counted. */
#ifndef TFI_NCCL_COMMUNICATORS_H
#define TFI_NCCL_COMMUNICATORS_H

#include "base/tfi.h"

enum tfi_direction { TFI_SENT, TFI_RECEIVED, TFI_DIRECTIONS };

/* The sends to each peer and the receives from it. */
struct tfi_peer_counts {
    uint32_t ranks;
    uint32_t room; /* the most ranks that this mapping has counts for */
    uint32_t count[];
};

struct tfi_communicator {
    uint64_t handle;              /* ncclComm_t; 0: free */
    uint64_t hash;                /* the same number on all ranks of the group; 0: unknown */
    uint64_t sequence;            /* collectives so far: atomic */
    int32_t rank;                 /* -1: unknown */
    uint32_t ranks;               /* 0: unknown */
    uint32_t splits, shrinks;     /* atomic */
    struct tfi_peer_counts *peer; /* NULL until the first send or receive */
};

/* The communicator of a handle; NULL if it is not known. */
struct tfi_communicator *tfi_communicator_find(uint64_t handle);

/* Adds a communicator, or replaces what is known of the handle; NULL, and counted, if there is no room. */
struct tfi_communicator *tfi_communicator_add(uint64_t handle, uint64_t hash, int32_t rank, uint32_t ranks);

/* Forgets a communicator; called before it is destroyed, because its handle may be given out again at once. */
void tfi_communicator_remove(uint64_t handle);

/* Number of a send to a peer, or of a receive from it, from 0; 0 as well if it can't be counted. */
uint64_t tfi_communicator_next(struct tfi_communicator *communicator, enum tfi_direction direction, uint32_t peer);

/* Continues a hash with more bytes. */
#define TFI_HASH_START 0xcbf29ce484222325u
uint64_t tfi_communicator_hash(uint64_t hash, const void *bytes, size_t count);

/* A handle that the library stores later: at the end of a group, or when a communicator that does not block is ready.
 * `where` is valid until then. */
void tfi_communicator_await(void *const *where, uint64_t hash, uint64_t parent);

/* Ends the waiting for the handles of a parent, or with 0 for those of the calling thread. Adds them if the library has
 * `stored` them. */
void tfi_communicator_arrived(uint64_t parent, bool stored);

#endif
