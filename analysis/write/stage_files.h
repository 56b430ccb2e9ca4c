/* stage_files.h - names the files that a report writes about stages. */
#ifndef TFA_STAGE_FILES_H
#define TFA_STAGE_FILES_H

#include "model/names.h"

/* Initialise it with zeros. */
struct stage_files {
    struct names texts; /* taken names, and stems */
    uint32_t *value;    /* by text */
    size_t capacity;
};

/* Returns a stage's name as a part of a file name; the caller frees it. Bytes unsuitable for file names become `_`. */
char *stage_clean_name(const char *stage, size_t length);

/* Returns DIRECTORY/PREFIX STAGE SUFFIX without the blanks; otherwise like stage_file. */
char *stage_file_named(struct stage_files *files, const char *directory, const char *prefix, const char *stage,
                       size_t length, const char *suffix);

/* Returns DIRECTORY/STAGE_rankR, to which the caller adds a suffix; the caller frees it. Bytes of the stage's name
 * that do not suit a file name become `_`. A taken name gets `~2`, `~3`. An unknown rank is 0, as in TeleFuser. */
char *stage_file(struct stage_files *files, const char *directory, const char *stage, size_t length, int64_t rank);
void stage_files_free(struct stage_files *files);

/* Returns the length of a stage's name without the number of a trailing `#N`, as all N are one stage; else 0. */
size_t without_number(const char *stage, size_t length);

/* Returns the directory of a file, or the path itself if it is a directory. The caller frees it. */
char *directory_of(const char *path);

#endif
