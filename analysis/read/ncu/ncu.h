/* ncu.h - reads what Nsight Compute's command line writes with --csv: the measured launches of kernels.
 *
 * Both shapes are read: --page details (and --csv with --metrics) has a row for each metric, --page raw a row for each
 * launch, a column for each metric and a row of units below the head. What ncu or the program print around the table is
 * skipped. Numbers have the thousands separator of the locale in which ncu ran, and units have prefixes.
 */
#ifndef TFA_NCU_H
#define TFA_NCU_H

#include "read/ncu/csv.h"
#include "read/trace.h"

enum ncu_metric {
#define METRIC(id, key, kind) NCU_##id,
#include "read/ncu/metrics.def"
    NR_NCU_METRICS
};
extern const char *const ncu_keys[NR_NCU_METRICS];

/* A kernel launch that ncu measured, in one pass or in several. */
struct ncu_launch {
    char *kernel, *grid, *block;   /* as ncu prints them; NULL: the file does not say */
    uint64_t process, number;      /* process id and ncu's ID: together they name the launch */
    double metric[NR_NCU_METRICS]; /* seconds, bytes, percent; NAN: not measured */
    uint64_t launches;             /* above 1: ncu itself has summed them up */
    char *stall;                   /* what warps waited for most, in ncu's word; NULL: not measured */
    double stall_value;
    char *says; /* what ncu's rule on the bottleneck says; NULL: no rule was run */
};

struct ncu_launches {
    struct ncu_launch *launch;
    size_t count, capacity;
    struct map of; /* by hash of process, number and kernel */
};

/* True for a report of ncu's own format, which only ncu reads. */
bool is_ncu_report(const char *path);
/* True for a file that ncu's `--csv` may have written: by its name, or because it begins with such a table. */
bool is_ncu_csv(const char *path);
/* Adds the launches of a file; a report is printed by `ncu --import`, which must be in the PATH. Returns false if it has none; a note gives the reason. Damage adds notes too. */
bool ncu_read_file(const char *path, struct ncu_launches *launches, struct notes *notes);
/* The same of bytes in memory. */
bool ncu_read_bytes(const char *bytes, size_t length, struct ncu_launches *launches, struct notes *notes);
void ncu_launches_free(struct ncu_launches *launches);

#endif
