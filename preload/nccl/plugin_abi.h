/* plugin_abi.h - the parts of NCCL's profiler interface, versions 3 to 6, that this library reads.
 *
 * NCCL 2.26 knows version 3, 2.27 adds 4, 2.28 adds 5, 2.29.2 adds 6, and later ones still take these. NCCL's headers are
 * not installed with it, so the layouts are written here, and only as far as they are read: an event of NCCL may be longer.
 * Version 6 adds kinds of events behind those of version 5, which are unchanged.
 */
#ifndef TFI_NCCL_PLUGIN_ABI_H
#define TFI_NCCL_PLUGIN_ABI_H

#include <stddef.h>
#include <stdint.h>

/* Kinds of events, and the bits that ask for them. */
enum { TFI_NCCL_EVENT_COLLECTIVE = 1 << 1, TFI_NCCL_EVENT_PEER = 1 << 2 };

/* Version 3: the event names the communicator. Versions 3 and 4 have one byte for the kind. */
struct tfi_nccl_event_v3 {
    uint8_t kind;
    void *parent;
    int rank;
    union {
        struct {
            const char *name;
            uint64_t communicator, sequence;
            const char *function;
            const void *send;
            void *receive;
            size_t count;
            int root;
            const char *type;
            uint8_t channels, warps;
            const char *algorithm, *protocol;
        } collective;
        struct {
            const char *name;
            uint64_t communicator;
            const char *function;
            void *buffer;
            const char *type;
            size_t count;
            int peer;
        } peer;
    };
};

/* From version 4 on, init() names the communicator. */
struct tfi_nccl_collective {
    uint64_t sequence;
    const char *function;
    const void *send;
    void *receive;
    size_t count;
    int root;
    const char *type;
    uint8_t channels, warps;
    const char *algorithm, *protocol;
};

struct tfi_nccl_peer {
    const char *function;
    void *buffer;
    const char *type;
    size_t count;
    int peer;
    uint8_t channels;
};

struct tfi_nccl_event_v4 {
    uint8_t kind;
    void *parent;
    int rank;
    union {
        struct tfi_nccl_collective collective;
        struct tfi_nccl_peer peer;
    };
};

/* Versions 5 and 6. */
struct tfi_nccl_event_v5 {
    uint64_t kind;
    void *parent;
    int rank;
    union {
        struct tfi_nccl_collective collective;
        struct tfi_nccl_peer peer;
    };
};

_Static_assert(offsetof(struct tfi_nccl_event_v3, collective.channels) == 96, "layout of version 3");
_Static_assert(offsetof(struct tfi_nccl_event_v3, peer.peer) == 72, "layout of version 3");
_Static_assert(offsetof(struct tfi_nccl_event_v4, collective.channels) == 80, "layout of version 4");
_Static_assert(offsetof(struct tfi_nccl_event_v5, peer.channels) == 60, "layout of version 5");

/* The plugin of each version. The results are ncclResult_t; nothing reads the logger. */
struct tfi_nccl_plugin_v3 {
    const char *name;
    int (*init)(void **context, int *mask);
    int (*start)(void *context, void **handle, const struct tfi_nccl_event_v3 *event);
    int (*stop)(void *handle);
    int (*record_state)(void *handle, int state, const void *arguments);
    int (*finalize)(void *context);
};

struct tfi_nccl_plugin_v4 {
    const char *name;
    int (*init)(void **context, int *mask, const char *communicator_name, uint64_t communicator, int nodes, int ranks,
                int rank, void (*log)(void));
    int (*start)(void *context, void **handle, const struct tfi_nccl_event_v4 *event);
    int (*stop)(void *handle);
    int (*record_state)(void *handle, int state, const void *arguments);
    int (*finalize)(void *context);
};

struct tfi_nccl_plugin_v5 {
    const char *name;
    int (*init)(void **context, uint64_t communicator, int *mask, const char *communicator_name, int nodes, int ranks,
                int rank, void (*log)(void));
    int (*start)(void *context, void **handle, const struct tfi_nccl_event_v5 *event);
    int (*stop)(void *handle);
    int (*record_state)(void *handle, int state, const void *arguments);
    int (*finalize)(void *context);
};

#endif
