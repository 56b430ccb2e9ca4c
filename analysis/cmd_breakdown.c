/* cmd_breakdown.c - to be written. */
#include "session.h"

void cmd_breakdown(struct session *session)
{
    (void)session;
}
