/* memory_pictures.h - the pictures that `memory --layout html` draws. */
#ifndef TFA_MEMORY_PICTURES_OF_SESSION_H
#define TFA_MEMORY_PICTURES_OF_SESSION_H

#include "ask/memory/pictures.h"
#include "commands/session.h"

/* Collects at most `most` pictures of the chosen processes, of a session that has read what --layout html needs. */
void memory_pictures(struct session *session, struct pictures *pictures, size_t most);

#endif
