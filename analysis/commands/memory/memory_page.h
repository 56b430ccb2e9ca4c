/* memory_page.h - memory over time as one page in HTML: `memory --layout html`. */
#ifndef TFA_MEMORY_PAGE_H
#define TFA_MEMORY_PAGE_H

#include "ask/memory/pictures.h"
#include "commands/session.h"

/* Collects the pictures of the chosen processes, of a session that has read what --layout html needs. */
void memory_pictures(struct session *session, struct pictures *pictures, size_t most);
/* Writes the page into the open output. */
void memory_page_write(struct session *session, const struct pictures *pictures);

#endif
