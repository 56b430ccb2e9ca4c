/* export_tfr.h - writes our own traces, or those parts of them that belong to a stage, as Chrome traces. */
#ifndef TFA_EXPORT_TFR_H
#define TFA_EXPORT_TFR_H

#include "session.h"

/* What the model has to hold; the traces stay open. */
#define WANT_FOR_EXPORT_TFR                                                                                            \
    (WANT_RANGES | WANT_DETAILS | WANT_MARKS | WANT_CALLS | WANT_DEVICE | WANT_LAUNCHES | WANT_OPERATORS |             \
     WANT_OPERATOR_DETAILS | WANT_MEMORY)

/* What an export leaves out, in Kineto's terms: calls belong to both processors and are there unless both are left out.
 * Ranges and marks are there in every case. */
enum {
    WITHOUT_CPU = 1, /* operators, and calls that are not the device's */
    WITHOUT_GPU = 2,
    WITHOUT_MEMORY = 4,
    WITHOUT_STACKS = 8,
    WITHOUT_SHAPES = 16, /* and values, types and strides, and operations, which follow from shapes */
};

static inline bool without_calls(uint32_t without)
{
    return without & WITHOUT_CPU && without & WITHOUT_GPU;
}

struct tfr_export {
    const struct process **process;
    size_t processes; /* at least one */
    struct out *out;  /* open */
    const char *artefact;
    const struct name *stage; /* NULL: not of one */
    const uint32_t *of_name;  /* by name: what lies in stages whose number is `target`; NULL: everything */
    uint32_t target;
    uint32_t without; /* WITHOUT_* */
};

/* Returns how many events it has written, the descriptions of processes and threads apart. */
uint64_t export_tfr(const struct tfr_export *asked, const struct session *session);

#endif
