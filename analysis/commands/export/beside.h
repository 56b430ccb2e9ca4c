/* beside.h - the directory of an export that writes several files: --output, or one beside the first trace. */
#ifndef TFA_BESIDE_H
#define TFA_BESIDE_H

#include "commands/session.h"

struct beside {
    char *directory;
    int fd; /* -1: it could not be opened; a message said so */
};

/* Without --output the directory `name` lies beside the trace and is opened relative to the trace's directory, so that no
 * link is followed. */
bool beside_open(struct beside *beside, const struct session *session, const char *name);
void beside_close(struct beside *beside);

#endif
