/* cmd_kinds.c - to be written. */
#include "session.h"

void cmd_kinds(struct session *session)
{
    (void)session;
}
