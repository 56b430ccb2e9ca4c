/* cmd_report.c - to be written. */
#include "session.h"

void cmd_report(struct session *session)
{
    (void)session;
}
