/* page.h - pages that a browser shows: of one run (`report --html`), and of two (`diff --html`). */
#ifndef TFA_PAGE_H
#define TFA_PAGE_H

#include "commands/session.h"

/* Write the page into the file of --html. The session's status says whether they did. */
void page_of_run(struct session *session);
void page_of_two(struct session *session);
/* Returns options with which a session reads its inputs for its question and for a page. The caller frees `question`. */
struct options page_options(const struct options *of);
/* Collects the data of a page from a session that has these options, and has read its inputs with them. */
void page_collect(struct session *session, struct out *data);

#endif
