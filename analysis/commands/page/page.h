/* page.h - pages that a browser shows: of one run (`report --html`), and of two (`diff --html`). */
#ifndef TFA_PAGE_H
#define TFA_PAGE_H

#include "commands/session.h"

/* Write the page into the file of --html. The session's status says whether they did. */
void page_of_run(struct session *session);
void page_of_two(struct session *session);
/* Reads the inputs of a session with a session of its own, and collects the data of the page of this run. A page reads
 * more than other questions do, and what a question reads must not depend on that. False: nothing could be read. */
bool page_collect(struct session *session, struct out *data);

#endif
