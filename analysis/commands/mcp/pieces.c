/* pieces.c - cuts an answer in JSON between its rows, so that each piece is JSON that says where the next one begins. */
#include "commands/mcp/pieces.h"

#include <string.h>

enum { KEYS_FIT = 200 /* bytes of what a piece says of itself */ };

static bool begins(const struct pieces *p, const char *with)
{
    size_t length = strlen(with);
    return p->line.length >= length && memcmp(p->line.data, with, length) == 0;
}

static size_t room_for_rows(const struct pieces *p)
{
    size_t head = p->from ? 0 : p->head.length;
    return ANSWER_FITS - KEYS_FIT - MIN(head, (size_t)(ANSWER_FITS / 2));
}

static void take_row(struct pieces *p)
{
    size_t length = p->line_length - (p->line_length == p->line.length && p->line.data[p->line.length - 1] == ',');
    bool fits = p->rows.length + length + 2 <= room_for_rows(p);
    if (p->row++ < p->from || p->next) return;
    if (!fits && p->rows.length) {
        p->next = p->row - 1;
        return;
    }
    p->left_out |= !fits;
    if (p->rows.length) text_puts(&p->rows, ",\n");
    if (fits) text_add(&p->rows, p->line.data, length);
    else text_format(&p->rows, "  {\"left_out\": \"a row of %zu bytes; --format csv has it\"}", length);
}

static void take_line(struct pieces *p)
{
    bool first = p->part == PIECES_HEAD && !p->head.length;
    if (first && !begins(p, "{\"command\"")) p->part = PIECES_NONE;
    if (p->part == PIECES_ROWS && begins(p, "]")) p->part = PIECES_TAIL;
    if (p->part == PIECES_HEAD) {
        text_add(&p->head, p->line.data, p->line.length);
        text_puts(&p->head, "\n");
        if (begins(p, "\"rows\": [")) p->part = PIECES_ROWS;
        else if (p->head.length > ANSWER_FITS) p->head.length = ANSWER_FITS; /* it will not be shown */
    } else if (p->part == PIECES_ROWS) {
        if (p->line_length) take_row(p);
    } else if (p->part == PIECES_TAIL) {
        p->tail_length += p->line_length + 1;
        text_add(&p->tail, p->line.data, p->tail_length > ANSWER_FITS ? 0 : p->line.length);
        text_puts(&p->tail, p->tail_length > ANSWER_FITS ? "" : "\n");
    }
    p->line.length = p->line_length = 0;
}

void pieces_add(struct pieces *p, const char *bytes, size_t length)
{
    while (length && p->part != PIECES_NONE) {
        const char *end = memchr(bytes, '\n', length);
        size_t part = end ? (size_t)(end - bytes) : length;
        text_add(&p->line, bytes, MIN(part, ANSWER_FITS - MIN(p->line.length, (size_t)ANSWER_FITS)));
        p->line_length += part;
        if (end) take_line(p);
        part += end != NULL;
        bytes += part;
        length -= part;
    }
}

bool pieces_end(struct pieces *p, struct text *piece)
{
    if (p->part != PIECES_TAIL) return false;
    size_t whole = p->head.length + p->rows.length + p->tail_length;
    if (!p->from && !p->next && !p->left_out && whole + 1 <= ANSWER_FITS) return false;
    bool has_head = !p->from && p->head.length <= ANSWER_FITS / 2;
    size_t without_tail = (has_head ? p->head.length : 0) + p->rows.length + KEYS_FIT;
    bool long_tail = p->tail_length > ANSWER_FITS - KEYS_FIT, ends = !p->next && p->rows.length == 0;
    if (!p->next && !ends) {
        ends = without_tail + p->tail_length <= ANSWER_FITS;
        if (!ends) p->next = p->row; /* the last piece has the totals alone */
    }
    text_format(piece, "{\"offset\": %zu, \"next_offset\": ", p->from);
    text_format(piece, ends ? "null" : "%zu", p->next);
    text_format(piece, ", \"rows_in_all\": %zu,\n", p->row);
    if (has_head) text_add(piece, p->head.data + 1, p->head.length - 1);
    else text_puts(piece, "\"rows\": [\n");
    if (p->rows.length) text_add(piece, p->rows.data, p->rows.length);
    if (!ends) text_puts(piece, "\n]}\n");
    else if (long_tail) text_format(piece, "\n],\n\"left_out\": \"totals of %zu bytes\"}\n", p->tail_length);
    else text_format(piece, "\n%s", p->tail.data);
    return true;
}

void pieces_free(struct pieces *p)
{
    text_free(&p->line);
    text_free(&p->head);
    text_free(&p->rows);
    text_free(&p->tail);
}
