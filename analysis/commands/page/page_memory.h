/* page_memory.h - the pictures of memory over time in a page of a run, and in a page of their own. */
#ifndef TFA_PAGE_MEMORY_H
#define TFA_PAGE_MEMORY_H

#include "ask/memory/pictures.h"
#include "commands/session.h"

/* Writes a JSON object. */
void page_memory_put(struct out *out, const struct session *session, const struct pictures *pictures);
/* Writes a page of these pictures alone into the open output: `memory --layout html`. */
void page_of_memory(struct session *session, const struct pictures *pictures);

#endif
