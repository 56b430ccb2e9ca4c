/* visible.h - what of a trace's texts may reach a terminal as it is, and how the rest is shown.
 *
 * A trace may come from anybody. Control characters move the cursor, rename the window or do worse, and marks of writing
 * direction make a line read as another one. Everything that is printed for people passes text_visible(), everything that is
 * printed as JSON escapes the same characters.
 */
#ifndef TFA_VISIBLE_H
#define TFA_VISIBLE_H

#include "util.h"

/* The character at p, if it is not to be shown: a control (C0, DEL, C1), a line or paragraph separator, a mark of
 * direction. Its length is in *length; 0: there is no UTF-8 there. False: it can be shown. */
bool is_unsafe(const char *p, const char *end, size_t *length, uint32_t *code);
/* The same text with \x1b, \u202e and the like for what is hidden, and \xNN for bytes that are no UTF-8. */
void text_visible(struct text *text, const char *bytes, size_t length);
/* UTF-8: U+FFFD stands for bytes that are none. */
void text_utf8(struct text *text, const char *bytes, size_t length);
/* JSON as strict readers take it: U+FFFD for bytes that are no UTF-8, for halves of surrogate pairs and for NUL, and null for
 * NaN and the infinities, which Python writes. */
void text_strict_json(struct text *text, const char *json, size_t length);
/* JSON with escapes for the same characters, which stand in its strings. */
void text_json(struct text *text, const char *json, size_t length);
bool json_is_safe(const char *json, size_t length); /* it has none */
/* For a cell of csv too: what a spreadsheet would take for a formula gets an apostrophe in front. */
bool is_formula(const char *text, size_t length);

#endif
