/* kineto_class.h - the class of an event of a Kineto trace, by its category (categories.def). */
#ifndef TFA_KINETO_CLASS_H
#define TFA_KINETO_CLASS_H

#include "model/model.h"
#include "read/json/json.h"

/* Returns the class of a category: old and new names, of every vendor. */
enum event_class kineto_class_of(struct slice category);
/* The same of an event whose category has that class: old traces have the profiler's steps among the operators. */
enum event_class kineto_class_with_name(enum event_class event_class, struct slice name);
enum event_class kineto_class(struct slice category, struct slice name);

#endif
