/* comm_saved.h - the collectives and the facts of a process, as a summary (.tfs) holds them. */
#ifndef TFA_COMM_SAVED_H
#define TFA_COMM_SAVED_H

#include "ask/comm/comm_reduction.h"
#include "read/summary/packing.h"

/* Packs a struct comm_taken with its facts. */
void comm_save(struct text *to, const struct comm_taken *taken);
/* Returns a struct comm_taken; with `facts` it has them too. What is damaged sets `bad`, and the struct is empty. */
struct comm_taken *comm_restore(struct unpacking *from, struct names *names, int64_t rank, bool facts);

#endif
