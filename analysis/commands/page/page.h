/* page.h - pages that a browser shows: of one run (`report --html`), and of two (`diff --html`). */
#ifndef TFA_PAGE_H
#define TFA_PAGE_H

#include "commands/session.h"

/* Write the page into the file of --html. The session's status says whether they did. */
void page_of_run(struct session *session);
void page_of_two(struct session *session);

#endif
