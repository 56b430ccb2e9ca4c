/* values.c - prints single values by their type. */
#include "write/values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/frames.h"

/* Numbers of NVTX's payload types. */
enum { NVTX_UINT64 = 1, NVTX_INT64, NVTX_DOUBLE, NVTX_UINT32, NVTX_INT32, NVTX_FLOAT };

void emit_payload(struct emit *e, const char *key, uint64_t bits, uint64_t type)
{
    double real;
    float small;
    uint32_t half = (uint32_t)bits;
    switch (type) {
    case 0: emit_null(e, key); break;
    case NVTX_UINT64: emit_count(e, key, bits); break;
    case NVTX_INT64: emit_int(e, key, (int64_t)bits); break;
    case NVTX_DOUBLE:
        memcpy(&real, &bits, sizeof real);
        emit_double(e, key, real);
        break;
    case NVTX_UINT32: emit_count(e, key, half); break;
    case NVTX_INT32: emit_int(e, key, (int32_t)half); break;
    case NVTX_FLOAT:
        memcpy(&small, &half, sizeof small);
        emit_double(e, key, (double)small);
        break;
    default: emit_hex(e, key, bits);
    }
}

static void emit_string(struct emit *e, const struct meaning *meaning, const char *key, uint64_t id)
{
    const struct string *string = strings_get(&meaning->process->trace->strings, id);
    if (string) emit_bytes_text(e, key, string->text, string->length);
    else emit_text(e, key, id ? "(lost)" : NULL);
}

static void emit_stack(struct emit *e, const struct meaning *meaning, const char *key, uint64_t id)
{
    struct text text = {0};
    if (!id) {
        emit_null(e, key);
        return;
    }
    bool good = stack_lines(&meaning->process->trace->strings, id, &text);
    emit_bytes_text(e, key, text.data, text.length);
    if (!good && meaning->bad_stacks) *meaning->bad_stacks += 1;
    text_free(&text);
}

static void emit_func(struct emit *e, const struct meaning *meaning, const char *key, uint64_t id)
{
    uint32_t place = map_get(&meaning->process->func_of, id);
    const struct string *string = strings_get(&meaning->process->trace->strings, id);
    if (place != MAP_NONE) emit_text(e, key, meaning->process->func[place].name);
    else if (string) emit_bytes_text(e, key, string->text, string->length);
    else emit_text(e, key, id ? "(lost)" : NULL);
}

static void emit_clock_name(struct emit *e, const char *key, uint64_t clock)
{
    static const char *const names[] = {
        [TFI_CLOCK_REALTIME] = "realtime", [TFI_CLOCK_MONOTONIC] = "monotonic", [TFI_CLOCK_DEVICE] = "device"};
    if (clock < ARRAY_SIZE(names) && names[clock]) emit_text(e, key, names[clock]);
    else emit_count(e, key, clock);
}

static void emit_drop_name(struct emit *e, const char *key, uint64_t cause)
{
    for (size_t i = 0; i < drop_count; i++) {
        if (drop_table[i].number >= 0 && (uint64_t)drop_table[i].number == cause) {
            char name[64];
            lower_case(name, sizeof name, drop_table[i].name);
            emit_text(e, key, name);
            return;
        }
    }
    emit_count(e, key, cause);
}

static void with_unit(struct emit *e, const char *key, const char *unit, int64_t ns, uint64_t bytes)
{
    size_t length = strlen(key), n = strlen(unit);
    bool has = length >= n && strcmp(key + length - n, unit) == 0;
    char *full = string_format("%s%s%s", key, has ? "" : "_", has ? "" : unit);
    if (strcmp(unit, "us") == 0) emit_us(e, full, ns);
    else emit_count(e, full, bytes);
    free(full);
}

/* Converts a duration at its own time, as ticks have no fixed length. */
static int64_t duration_ns(const struct meaning *meaning, uint64_t ticks)
{
    struct clock clock = meaning->process->clock; /* a copy, because its hint must not be shared */
    uint64_t start = meaning->time - (meaning->is_end ? MIN(ticks, meaning->time) : 0), end;
    if (__builtin_add_overflow(start, ticks, &end)) end = start;
    return clock_ns(&clock, end) - clock_ns(&clock, start);
}

void emit_typed(struct emit *e, const struct meaning *meaning, const char *key, enum tfi_type type, bool is_signed,
                uint64_t value)
{
    switch (type) {
    case TFI_TYPE_INT: emit_int(e, key, (int64_t)value); break;
    case TFI_TYPE_HEX:
    case TFI_TYPE_ADDRESS: emit_hex(e, key, value); break;
    case TFI_TYPE_BYTES: with_unit(e, key, "bytes", 0, value); break;
    case TFI_TYPE_DURATION: with_unit(e, key, "us", duration_ns(meaning, value), 0); break;
    case TFI_TYPE_DEVICE_NS: with_unit(e, key, "ns", 0, value); break;
    case TFI_TYPE_STRING: emit_string(e, meaning, key, value); break;
    case TFI_TYPE_FUNC: emit_func(e, meaning, key, value); break;
    case TFI_TYPE_STACK: emit_stack(e, meaning, key, value); break;
    case TFI_TYPE_CLOCK: emit_clock_name(e, key, value); break;
    case TFI_TYPE_DROP: emit_drop_name(e, key, value); break;
    case TFI_TYPE_PAYLOAD: emit_payload(e, key, value, meaning->payload_type); break;
    default:
        if (is_signed) emit_int(e, key, (int64_t)value);
        else emit_count(e, key, value);
    }
}

const char *reason_word(unsigned bit, char room[16])
{
    static const struct {
        uint64_t bit;
        const char *word;
    } words[] = {
#define REASON(number, word, meaning) {number, word},
#include "clock_reasons.def"
#undef REASON
    };
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (words[i].bit == 1ull << bit) return words[i].word;
    snprintf(room, 16, "bit_%u", bit);
    return room;
}

void emit_reasons(struct emit *e, const char *key, uint64_t reasons)
{
    char room[16];
    emit_open(e, key, true);
    for (unsigned bit = 0; bit < 64; bit++)
        if (reasons >> bit & 1) emit_text(e, NULL, reason_word(bit, room));
    emit_close(e);
}
