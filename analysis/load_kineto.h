/* load_kineto.h - fills the model from a Kineto trace. */
#ifndef TFA_LOAD_KINETO_H
#define TFA_LOAD_KINETO_H

#include "model.h"
#include "read_kineto.h"

/* The class of a category by categories.def, of old and new names and of every vendor. */
enum event_class kineto_class(struct slice category, struct slice name);

/* Where an event goes, if everything is wanted: the n-th event of a table in the file is its n-th place in the model. */
enum kineto_table { TABLE_NONE, TABLE_RANGES, TABLE_SPANS, TABLE_WORKS, TABLE_FORWARDS };
enum kineto_table kineto_table(const struct kineto_event *event, enum event_class class);

/* False: unusable, and a note says why. `process` is initialised and to be freed in both cases. */
bool load_kineto(const char *path, enum file_how how, struct names *names, unsigned want, struct process *process,
                 struct notes *notes, atomic_ullong *done);
bool load_kineto_bytes(const struct kineto_bytes *bytes, struct names *names, unsigned want, struct process *process,
                       struct notes *notes);

#endif
