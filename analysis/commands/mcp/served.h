/* served.h - the directories that `tfanalyze mcp` was started for: which paths lie in them, and which runs they hold. */
#ifndef TFA_SERVED_H
#define TFA_SERVED_H

#include "base/util.h"

struct served {
    struct served_directory {
        char *typed; /* as the user typed it, without a slash at its end */
        char *real;  /* absolute and without links */
    } * directory;
    size_t count;
};

/* Adds a directory. Returns false, after a message, if it is none. */
bool served_add(struct served *served, const char *directory);
/* Returns the path to read for a path that a client gave; the caller frees it. NULL: it may not be read, or there is
 * nothing; `why` gets the reason. */
char *served_path(const struct served *served, const char *path, struct text *why);
/* Returns the directory to read where no input is given: the only one that is served, if it holds traces. NULL: `why`
 * gets the runs that there are. */
const char *served_run(const struct served *served, struct text *why);
/* Appends the directories, as they were typed. */
void served_names(const struct served *served, struct text *to);
void served_free(struct served *served);

#endif
