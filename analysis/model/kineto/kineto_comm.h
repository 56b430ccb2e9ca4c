/* kineto_comm.h - reads collectives from a Kineto trace: kernels, record_param_comms operators, annotations of c10d. */
#ifndef TFA_KINETO_COMM_H
#define TFA_KINETO_COMM_H

#include "model/health/kineto_judge.h"
#include "model/model.h"
#include "read/kineto.h"

/* A kernel whose arguments describe no collective. */
struct plain_kernel {
    uint64_t correlation, external;
    int64_t start, end;
    uint32_t name, work;
    uint32_t entry; /* of its collective, if it communicates by its name; else NO_PLACE */
};

struct kineto_comm {
    struct names *names;
    struct map is_kernel_of; /* by kernel name: 1 if it communicates, else 0 */
    size_t others;           /* entries that are not annotations of a device's backend */
    uint32_t *annotation;    /* entries of such annotations */
    size_t annotations, annotation_capacity;
    struct plain_kernel *plain;
    size_t plains, plain_capacity;
    struct map operator_of; /* operators whose own kernels communicate: their operation by external id */
    struct names operators; /* their names */
    uint32_t *op;           /* by the number in `operators` */
    size_t ops, op_capacity;
};

/* True if the arguments of an event describe a collective. */
bool comm_describes(const struct kineto_event *event);
/* Takes the last work of `process`, a kernel with that name: a collective by its description or its name, or perhaps by
 * its operator, which may come later. */
void comm_take_kernel(struct kineto_comm *comm, struct process *process, const struct kineto_event *event,
                      uint32_t name, struct needs needs);
/* Takes an operator, whose own kernels may communicate. */
void comm_take_operator(struct kineto_comm *comm, const struct kineto_event *event);
/* Adds a record_param_comms operator if it is a collective. */
void comm_take_call(struct kineto_comm *comm, struct process *process, const struct kineto_event *event,
                    uint32_t thread);
/* Adds the work of a backend, such as "gloo:all_reduce". */
void comm_take_annotation(struct kineto_comm *comm, struct process *process, const struct kineto_event *event,
                          uint32_t thread);
/* True for the name of an annotation of a c10d backend. */
bool is_backend_work(struct slice name);
/* Called after loading: joins the calls with their kernels. `judge` was concluded: it has the calls. */
void comm_conclude(struct kineto_comm *comm, struct process *process, const struct kineto_judge *judge,
                   struct needs needs);
void comm_free(struct kineto_comm *comm);

#endif
