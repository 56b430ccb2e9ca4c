/* kept_values.c - writes values of a row again that the row before had too. */
#include "write/rows/kept_values.h"

bool emit_again(struct emit *e, struct emit_kept *kept, uint32_t of)
{
    if (kept->text.buffer && kept->of == of && !e->sorted.key) { /* the order needs the value itself */
        out_write(e->out, kept->text.buffer, kept->text.used);
        e->cells += kept->cells;
        e->filled[e->depth] = true;
        return true;
    }
    if (!kept->text.buffer) out_memory(&kept->text);
    kept->text.used = 0;
    kept->out = e->out;
    kept->cells = e->cells;
    kept->of = of;
    e->out = &kept->text;
    return false;
}

void emit_keep_end(struct emit *e, struct emit_kept *kept)
{
    e->out = kept->out;
    out_write(e->out, kept->text.buffer, kept->text.used);
    kept->cells = e->cells - kept->cells;
}

void emit_kept_free(struct emit_kept *kept)
{
    out_discard(&kept->text);
}
