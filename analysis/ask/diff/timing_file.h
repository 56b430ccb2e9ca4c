/* timing_file.h - reads a timing.json, of TeleFuser or of ours, for a comparison. */
#ifndef TFA_DIFF_TIMING_FILE_H
#define TFA_DIFF_TIMING_FILE_H

#include "ask/diff/diff_rows.h"

/* True if the path is a file whose first bytes are those of a timing.json. */
bool is_timing_file(const char *path);
/* Adds the stages of the file, and their total. Returns false after a message if the file is damaged. */
bool timing_file_add(struct diff *diff, int side, const char *path);

#endif
