/* memory_values.c - prints the values of rows about memory. */
#include "commands/memory/memory_values.h"

#include "ask/memory/categories.h"
#include "model/frames.h"

void emit_total_bytes(struct emit *e, const char *key, uint64_t bytes)
{
    if (bytes == TOTAL_UNKNOWN) emit_null(e, key);
    else emit_bytes(e, key, bytes);
}

void emit_memory_device(struct emit *e, int64_t device)
{
    if (device == DEVICE_OTHER) emit_null(e, "device");
    else emit_int(e, "device", device);
}

void emit_memory_kind(struct emit *e, uint8_t kind)
{
    emit_text(e, "kind", memory_kinds[kind]);
}

void emit_frames(struct emit *e, const struct names *names, uint32_t stack)
{
    size_t depth = stack == NAME_NONE ? 0 : stack_depth(names, stack);
    if (!depth) {
        emit_null(e, "stack");
        return;
    }
    emit_open(e, "stack", true);
    for (size_t i = 0; i < (e->format == FORMAT_TEXT ? 1 : depth); i++) {
        struct text text = {0};
        frame_text(names_get(names, stack_frame(names, stack, i)), &text);
        emit_text(e, NULL, text.data ? text.data : "");
        text_free(&text);
    }
    emit_close(e);
}
