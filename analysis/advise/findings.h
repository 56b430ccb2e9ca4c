/* findings.h - findings: what takes a rank's time without need, from facts that other questions have.
 *
 * Headrooms are taken out of the leaves of the budget, rule by rule in the order of advise.def, so that those of a rank
 * never sum to more than its leaves have. What could not be looked at is named, with what would make it possible.
 */
#ifndef TFA_FINDINGS_H
#define TFA_FINDINGS_H

#include "advise/budget/wall.h"
#include "advise/roofline/roofs.h"

enum severity {
    SEVERITY_NOTE,
    SEVERITY_FINDING,
    SEVERITY_PROBLEM
}; /* below 1 % of the rank's time, below 10 %, above */
extern const char *const severity_names[];

struct evidence {
    char *what, *command;
};

struct finding {
    const char *id, *cause, *fix, *confirm, *confidence;
    char *words;  /* what it is */
    char *text;   /* the same behind its time and share */
    int64_t time; /* nanoseconds that it is about; 0: none */
    double share; /* of the rank's work, in percent */
    enum severity severity;
    int64_t rank, headroom; /* nanoseconds */
    int64_t gains;          /* the rank out of whose leaves it is taken: one that waits, where `rank` is late */
    unsigned leaves; /* of the budget, out of which the headroom is taken: bits by enum leaf; 0: it promises no time */
    bool beside_device;    /* the rank has device work, by which leaves are named */
    uint32_t stage, where; /* names: of a stage, of an operator; NAME_NONE: none */
    char *file, *function; /* a line of the program; NULL: unknown, or `file` is one that is read or written */
    int64_t line;          /* -1: none */
    struct evidence evidence[4];
    size_t evidences;
    bool is_repeat; /* an earlier finding is of the same rule, and this one is about no other line of its rank */
};

struct not_judged {
    const char *what, *how; /* how to make it possible */
    char *why;
};

struct advice {
    struct finding *finding;
    size_t findings, finding_capacity;
    size_t firsts; /* the first ones, which repeat none */
    struct not_judged *not_judged;
    size_t unjudged, unjudged_capacity;
};

struct needs advise_needs(const struct options *options);
/* Judges the chosen processes. The walls and the roofline are those of the same selection. The findings come sorted: the
 * largest headroom first, and of equal ones the more severe. What a rule finds on further ranks stands behind all those. */
void advise(struct advice *advice, const struct selection *chosen, const struct walls *walls,
            const struct roofline *roofline);
void advice_free(struct advice *advice);

#endif
