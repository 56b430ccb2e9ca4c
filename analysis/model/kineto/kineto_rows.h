/* kineto_rows.h - finds out whether a Kineto trace holds several processes, from what each of its rows contains. */
#ifndef TFA_KINETO_ROWS_H
#define TFA_KINETO_ROWS_H

#include "model/kineto/kineto_info.h"
#include "model/model.h"
#include "read/kineto_parts.h"

struct kineto_rows {
    struct kineto_parts *parts; /* its rows; the rest is empty until rows_divide */
    struct row_seen {
        uint64_t host, device; /* operators and calls; works of a device */
        int64_t rank;          /* that a mark states; -1: none */
        bool by_argument;
    } * seen;
    size_t capacity;
    size_t last, other; /* the row of the previous event, and another one: events of host and device take turns */
};

/* Takes an event; `event_class` is CLASS_OTHER unless it has a duration. */
void rows_take(struct kineto_rows *rows, const struct kineto_event *event, enum event_class event_class);
/* Returns the processes of the file, or NULL if it holds one. */
struct kineto_parts *rows_divide(struct kineto_rows *rows, const struct kineto_info *info);
/* Reads the file once more for the launches of works in rows that name no process, if there are such works. */
void rows_find_launches(const struct kineto_rows *rows, struct kineto_parts *parts, const char *path,
                        const struct stream_way *way);
void rows_free(struct kineto_rows *rows);

#endif
