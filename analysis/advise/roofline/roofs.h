/* roofs.h - the device work of operators beside what it had to compute and to move, by stage, rank, name and inputs. */
#ifndef TFA_ROOFS_H
#define TFA_ROOFS_H

#include "advise/roofline/models.h"
#include "ask/scope.h"
#include "base/sets/rows_by_key.h"

struct roof_row {
    struct {
        int64_t rank;
        uint32_t stage, name, shapes, types; /* names; name NAME_OUTSIDE: work of no operator */
    } key;                                   /* must be first */
    uint64_t calls;                          /* operators that launched work */
    int64_t device_ns;                       /* sum of the durations of their work */
    struct op_cost cost;                     /* of one call */
    const struct device_peaks *peaks;        /* of the rank's device; NULL: not known */
    double bound_ns;                         /* of all calls; 0: unknown */
    const char *bound;                       /* NULL: unknown */
};

struct roofline {
    KEYED_ROWS(struct roof_row);
    const char *gpu; /* of --gpu */
    int64_t device_ns, modelled_ns;
    uint64_t works;
    size_t impossible;               /* rows faster than their bound by a tenth */
    bool lacks_device, lacks_shapes; /* of some process */
    struct left_rows left;
};

struct needs roofline_needs(const struct options *options);
/* Adds the chosen processes, which are loaded with roofline_needs. The row with the largest headroom comes first. */
void roofline_of_model(struct roofline *roofline, const struct selection *chosen);
int64_t roof_headroom(const struct roof_row *row); /* nanoseconds; 0 if unknown */
void roofline_free(struct roofline *roofline);

#endif
