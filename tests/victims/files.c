/* files.c - opens stages, runs a shell command that changes the library's directories, and opens more stages.
 *
 * files COMMAND [close]: with `close` the program closes every descriptor above 2 after the command, as daemons do. The
 * stages after it, FILES_STAGES or 20,000, fill chunks, so the library writes to the trace again before the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tfinject.h"

static void stages(int count)
{
    char name[32];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "stage %d of %d", i, count);
        tfi_range_push(name);
        tfi_range_pop();
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    const char *count = getenv("FILES_STAGES");
    alarm(60);
    stages(3);
    if (system(argv[1])) return 3;
    if (argc > 2)
        for (int fd = 3; fd < 1024; fd++) close(fd);
    stages(count ? atoi(count) : 20000);
    puts("done");
    return 5;
}
