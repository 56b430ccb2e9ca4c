/* parquet_file.h - writes a table as a Parquet file: columns of whole numbers and of names, any value may be null.
 *
 * A file is a row of groups of GROUP_ROWS rows and a footer that says where each column of each group lies. A group is
 * written when it is full, so the memory depends on the number of columns, not on that of rows. A column of a group is
 * one page. Numbers stand as they are (PLAIN); a name stands in the group's dictionary once and as a number in the page
 * (RLE_DICTIONARY). Nulls are levels before the values. All pages are gzip members, which each reader takes; the
 * compressor is that of our .gz files. Numbers have their least and largest in the footer, by which readers skip groups.
 *
 * No library writes the format in C: Apache's is C++ of several megabytes, and Debian 12 has none. These are its smallest
 * parts; pyarrow, DuckDB and fastparquet read them in the tests.
 *
 * Threads: one at a time.
 */
#ifndef TFA_PARQUET_FILE_H
#define TFA_PARQUET_FILE_H

#include "base/gzip/deflater.h"
#include "model/names.h"
#include "write/out.h"
#include "write/parquet/compact.h"

/* Rows of a group: DuckDB gives a group to a thread and writes such ones itself. Names end a group earlier. */
enum { GROUP_ROWS = 122880, GROUP_NAME_BYTES = 1 << 23, COLUMNS_MOST = 16 };

enum column_type { COLUMN_NUMBER, COLUMN_NAME };

struct table_column {
    const char *name;
    enum column_type type;
    int64_t *value; /* those of the group that are known; of names: places in the dictionary */
    uint8_t *known; /* by row of the group */
    size_t values;
    struct map places; /* in the dictionary, by name */
    struct text dictionary;
};

struct parquet {
    struct out *out;
    const struct names *names;
    struct deflater *deflater;
    struct table_column column[COLUMNS_MOST];
    size_t columns, at; /* at: the column that gets the next value */
    size_t group_rows;
    uint64_t rows, offset; /* of the file, so far */
    size_t groups;
    struct compact footer; /* the descriptions of the groups */
    struct text page, packed;
    bool failed; /* the compressor lacks memory */
};

struct column_kind {
    const char *name;
    enum column_type type;
};

/* Begins a file in `out`, which the caller has opened and closes. */
void parquet_begin(struct parquet *file, struct out *out, const struct names *names, const struct column_kind *kind,
                   size_t columns);
/* Give the next value of the open row, in the order of the columns. NAME_NONE is null. */
void parquet_number(struct parquet *file, int64_t value);
void parquet_name(struct parquet *file, uint32_t name);
void parquet_null(struct parquet *file);
void parquet_row_end(struct parquet *file);
/* Writes what is left and the footer, and frees the memory. `left_out`: what the footer says that the rows lack; NULL:
 * nothing. False: it could not be compressed. */
bool parquet_end(struct parquet *file, const char *left_out);

#endif
