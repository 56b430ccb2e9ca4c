/* cmd_export_tensorboard.c - to be written. */
#include "session.h"

void cmd_export_tensorboard(struct session *session)
{
    (void)session;
}
