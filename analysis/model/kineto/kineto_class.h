/* kineto_class.h - the class of an event of a Kineto trace, by its category (categories.def). */
#ifndef TFA_KINETO_CLASS_H
#define TFA_KINETO_CLASS_H

#include "model/model.h"
#include "model/ranges/step_ranges.h"
#include "read/json/json.h"

/* Returns the class of a category: old and new names, of every vendor. */
enum event_class kineto_class_of(struct slice category);
/* The same of an event whose category has that class: old traces have the profiler's steps among the operators. */
static inline enum event_class kineto_class_with_name(enum event_class event_class, struct slice name)
{
    uint64_t number;
    bool is_step = event_class == CLASS_OPERATOR && name.length && *name.at == 'P' && step_number(name, &number);
    return is_step ? CLASS_ANNOTATION : event_class;
}
enum event_class kineto_class(struct slice category, struct slice name);

#endif
