/* screen_lines.h - lines of the first screen, cut to its width. */
#ifndef TFA_SCREEN_LINES_H
#define TFA_SCREEN_LINES_H

#include "write/out.h"

/* Writes a line, cut to the terminal or to 100 columns, with unsafe characters made visible, and empties the text. */
void screen_line(struct out *out, struct text *line);
/* Writes a text on as many lines as it takes, at most `most`, the further ones `indent` columns in; the last one is cut.
 * Returns their number. */
size_t screen_lines(struct out *out, struct text *text, size_t indent, size_t most);
/* Writes one line below an empty line. */
void screen_gap(struct out *out, struct text *line);

#endif
