/* page_file.h - writes a page: one HTML file with its style, its script and its data, which loads nothing.
 *
 * Its policy runs the page's own script and style, which it knows by their hashes, and nothing else. The data are JSON, which no
 * browser runs. Names of a trace stand in them alone, and the script sets them as text.
 */
#ifndef TFA_PAGE_FILE_H
#define TFA_PAGE_FILE_H

#include "write/out.h"

/* page_text.c, which scripts/gen-tables writes from the files of this folder: the page before and behind its data. */
extern const char page_head[], page_foot[];

/* Begins the data of a page: its kind, the version, and the list of its runs, which the caller writes and ends with `]}`. */
void page_begin(struct out *data, const char *kind);
/* Writes a page of `json`, which is valid JSON. */
void page_write(struct out *out, const char *json, size_t length);

#endif
