/* escape.h - decides which characters of a trace's texts reach a terminal unchanged, and escapes the others.
 *
 * A trace may come from anybody. Control characters move the cursor, rename the window or do worse, and direction
 * marks make a line read as another one. All text printed for people passes text_visible(); all output printed as
 * JSON escapes the same characters.
 */
#ifndef TFA_ESCAPE_H
#define TFA_ESCAPE_H

#include "base/util.h"

/* Returns true if the character at `p` must not be shown: a control (C0, DEL, C1), a line or paragraph separator, a
 * direction mark, or a byte that is not UTF-8. *length is its length, 0 for a byte that is not UTF-8. */
bool is_unsafe(const char *p, const char *end, size_t *length, uint32_t *code);
/* Appends the text with \x1b, \u202e and the like for unsafe characters, and \xNN for bytes that are not UTF-8. */
void text_visible(struct text *text, const char *bytes, size_t length);
bool is_ascii(const char *text, size_t length);
/* Appends the text as UTF-8, with U+FFFD for invalid bytes. */
void text_utf8(struct text *text, const char *bytes, size_t length);
/* True if a text between quotes has an invalid escape: its writer escapes nothing, and each backslash is one. */
bool escapes_nothing(const char *text, size_t length);
/* Appends JSON as strict readers accept it. U+FFFD replaces bytes that are not UTF-8, lone surrogates and NUL. null
 * replaces NaN and the infinities, which Python writes. Control characters in strings become escapes.
 * In a string whose writer escapes nothing, such as a Windows path, backslashes become escapes too. */
void text_strict_json(struct text *text, const char *json, size_t length);
/* Appends JSON with escapes for the same unsafe characters in its strings. */
void text_json(struct text *text, const char *json, size_t length);
bool json_is_safe(const char *json, size_t length); /* it has no unsafe character */
/* Tells whether a spreadsheet would take a csv cell for a formula; such cells get a leading apostrophe. */
bool is_formula(const char *text, size_t length);
/* Appends visible text in quotes, for one of several values on a line. */
void text_quoted(struct text *text, const char *bytes, size_t length);
/* Appends a cell of csv; with an apostrophe before a formula. */
void text_csv(struct text *text, const char *bytes, size_t length, bool formula);

/* ---- UTF-8 characters; each counts as one column ---- */
bool begins_character(char c);
size_t characters(const char *text, size_t length);
/* Returns the number of bytes of the first `count` characters. */
size_t characters_bytes(const char *text, size_t length, size_t count);

#endif
