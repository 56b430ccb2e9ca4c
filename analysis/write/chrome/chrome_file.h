/* chrome_file.h - writes the events of a file into a Chrome trace of their own, as they stand there. */
#ifndef TFA_CHROME_FILE_H
#define TFA_CHROME_FILE_H

#include "model/names.h"
#include "read/json/clean.h"
#include "write/event.h"
#include "write/out.h"

struct chrome_file {
    struct out *out; /* open */
    const char *artefact;
    const struct name *stage; /* NULL: not of a single stage */
    uint64_t written;
    bool in_events;
    struct strict strict;
};

struct event_taker chrome_taker(struct chrome_file *file);
/* Writes the member that marks a file as tfanalyze's: {"artefact": ..., "stage": ..., "rank": ..., "writer": ...}. */
void put_writer(struct out *out, const char *artefact, const struct name *stage, int64_t rank);

#endif
