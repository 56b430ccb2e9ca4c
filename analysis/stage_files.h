/* stage_files.h - the names of the files that a report writes about stages. */
#ifndef TFA_STAGE_FILES_H
#define TFA_STAGE_FILES_H

#include "names.h"

/* Begins as zeros. */
struct stage_files {
    struct names texts; /* names that are taken, and stems */
    uint32_t *value;    /* of each */
    size_t capacity;
};

/* A stage's name as a part of a file's name; to be freed. Bytes that a file's name should not have become `_`. */
char *stage_clean_name(const char *stage, size_t length);

/* DIRECTORY/PREFIX STAGE SUFFIX without the blanks; the rest as with stage_file. */
char *stage_file_named(struct stage_files *files, const char *directory, const char *prefix, const char *stage,
                       size_t length, const char *suffix);

/* DIRECTORY/STAGE_rankR, to which a suffix is added; to be freed. Bytes of the stage's name that a file's name should not
 * have become `_`; a name that is taken gets `~2`, `~3`. An unknown rank is 0, as TeleFuser has it. */
char *stage_file(struct stage_files *files, const char *directory, const char *stage, size_t length, int64_t rank);
void stage_files_free(struct stage_files *files);

/* Length of a stage's name without the number of `#N` at its end, which is the same stage every time; else 0. */
size_t without_number(const char *stage, size_t length);

/* The directory a file lies in, or the path itself if it is a directory. To be freed. */
char *directory_of(const char *path);

#endif
