/* beside.c - opens the directory of an export that writes several files. */
#include "commands/export/beside.h"

#include <stdlib.h>
#include <unistd.h>

#include "write/stage_files.h"

bool beside_open(struct beside *b, const struct session *session, const char *name)
{
    const struct process *first = session->chosen.process[0];
    const struct input *input = &session->inputs.input[first->input];
    const char *why = "", *asked = session->options.output;
    char *above = directory_of(first->path);
    b->directory = asked ? string_format("%s", asked) : string_format("%s/%s", above, name);
    if (asked) {
        b->fd = directory_make(asked, &why);
    } else {
        int around = directory_make(above, &why);
        b->fd = -1;
        if (around >= 0 && file_is_in(around, input->path, input->device, input->inode))
            b->fd = directory_below(around, name, &why);
        else if (around >= 0) why = "its directory was replaced while tfanalyze ran";
        if (around >= 0) close(around);
    }
    if (b->fd < 0) complain(b->directory, "cannot be created (%s)", why);
    free(above);
    return b->fd >= 0;
}

void beside_close(struct beside *b)
{
    if (b->fd >= 0) close(b->fd);
    free(b->directory);
}
