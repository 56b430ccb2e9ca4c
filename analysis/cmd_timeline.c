/* cmd_timeline.c - to be written. */
#include "session.h"

void cmd_timeline(struct session *session)
{
    (void)session;
}
