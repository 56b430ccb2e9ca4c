/* reduce.h - what `reduce` keeps of a process. */
#ifndef TFA_REDUCE_H
#define TFA_REDUCE_H

#include "ask/reduction.h"

/* A struct text with the bytes of comm_save. */
extern const struct reduction saved_reduction;

#endif
