/* cmd_overlap.c - to be written. */
#include "session.h"

void cmd_overlap(struct session *session)
{
    (void)session;
}
