/* graphs.h - CUDA graphs: records which call made a node, and which graph was made from which. */
#ifndef TFI_GRAPHS_H
#define TFI_GRAPHS_H

#include "hooks/hooks.h"

/* Effect of a table row on graphs. */
enum tfi_graph_role {
    TFI_ROLE_UNKNOWN, /* not looked at yet */
    TFI_ROLE_NONE,
    TFI_ROLE_LAUNCH, /* becomes a node if its stream is being captured */
    TFI_ROLE_REPLAY, /* the same; the node is a graph then */
    TFI_ROLE_BEGIN,
    TFI_ROLE_END,
    TFI_ROLE_NODE, /* adds a node */
    TFI_ROLE_CHILD,
    TFI_ROLE_INSTANTIATE,
    TFI_ROLE_UPDATE,
    TFI_ROLE_CLONE,
};

extern uint8_t tfi_graph_roles[TFI_NR_HOOKS];
extern uint32_t tfi_graph_captures; /* streams that are being captured */

/* True if tfi_graphs_after() has something to do for a call, once it has returned. */
static inline bool tfi_graphs_watch(enum tfi_hook hook)
{
    uint8_t role = __atomic_load_n(&tfi_graph_roles[hook], __ATOMIC_RELAXED);
    if (TFI_LIKELY(role == TFI_ROLE_NONE)) return false;
    return role > TFI_ROLE_REPLAY || role == TFI_ROLE_UNKNOWN || __atomic_load_n(&tfi_graph_captures, __ATOMIC_RELAXED);
}

/* Registers the function that returns a thread's open operator: its string, 0 if there is none. */
void tfi_graphs_operators(uint32_t (*open)(const struct tfi_thread *thread));

/* True if the stream is being captured. Keeps errno. */
bool tfi_graphs_is_captured(uint64_t stream);

/* True if a call with this argument is captured: the legacy default stream never is. Keeps errno. */
bool tfi_graphs_captures(enum tfi_hook hook, uint64_t stream);

/* Runs after a call that began at `start`, with its result and its arguments as its row names them. Keeps errno. */
void tfi_graphs_after(enum tfi_hook hook, uint64_t start, int64_t result, const uint64_t *args, uint32_t count);

#endif
