/* page_memory.h - the pictures of memory over time in a page. */
#ifndef TFA_PAGE_MEMORY_H
#define TFA_PAGE_MEMORY_H

#include "commands/session.h"

/* Writes a JSON object. Reads what `memory --layout html` needs. */
void page_memory_write(struct out *out, struct session *session);

#endif
