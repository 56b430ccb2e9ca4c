/* ncu_number.c - reads the numbers and units that Nsight Compute prints. */
#include "read/ncu/ncu_number.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 48 };

/* The value stands before a list of values of single units: "12 (3; 4; 5)". */
static size_t value_length(const struct csv_cell *cell)
{
    const char *list = memmem(cell->at, cell->length, " (", 2);
    return list ? (size_t)(list - cell->at) : cell->length;
}

void ncu_locale_add(struct ncu_locale *locale, const struct csv_cell *cell)
{
    size_t length = value_length(cell), commas = 0, points = 0;
    const char *last = NULL;
    for (const char *p = cell->at; p < cell->at + length; p++) {
        if (!isdigit((unsigned char)*p) && !strchr(",.-+' \302\240", *p))
            return; /* \302\240: a space that breaks no line */
        commas += *p == ',';
        points += *p == '.';
        last = *p == ',' || *p == '.' ? p : last;
    }
    if (!last) return;
    bool groups = cell->at + length - last == 4; /* as a thousands separator would stand */
    bool comma = commas && points ? *last == ',' : commas ? commas == 1 && !groups : points > 1;
    bool point = commas && points ? *last == '.' : points ? points == 1 && !groups : commas > 1;
    locale->commas += comma;
    locale->points += point;
}

double ncu_number(const struct ncu_locale *locale, const struct csv_cell *cell)
{
    char text[LONGEST], *end, decimal = locale->commas > locale->points ? ',' : '.';
    size_t length = value_length(cell), used = 0;
    for (size_t i = 0; i < length; i++) {
        char c = cell->at[i];
        if (strchr(",.' \302\240", c) && c && c != decimal) continue;
        if (used == sizeof text - 1) return NAN;
        text[used++] = c == decimal ? '.' : c;
    }
    text[used] = 0;
    if (!used || text[strspn(text, "0123456789.eE+-")]) return NAN; /* strtod also reads `inf`, `nan` and 0x10 */
    double value = strtod(text, &end);
    return *end || !isfinite(value) ? NAN : value;
}

static const struct {
    const char *word;
    enum ncu_kind kind;
} units[] = {
    {"%", NCU_PERCENT},    {"second", NCU_SECONDS}, {"s", NCU_SECONDS},  {"byte/second", NCU_SPEED},
    {"byte/s", NCU_SPEED}, {"B/s", NCU_SPEED},      {"byte", NCU_BYTES}, {"B", NCU_BYTES},
};

static double prefix(char c)
{
    switch (c) {
    case 'n': return 1e-9;
    case 'u': return 1e-6;
    case 'm': return 1e-3;
    case 'K':
    case 'k': return 1e3;
    case 'M': return 1e6;
    case 'G': return 1e9;
    case 'T': return 1e12;
    default: return 0;
    }
}

/* A prefix is one of decimals, for bytes too: ncu prints 1,024 bytes as 1.02 Kbyte. */
enum ncu_kind ncu_unit(const struct csv_cell *unit, double *factor)
{
    *factor = 1;
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (csv_is(unit, units[i].word)) return units[i].kind;
        struct csv_cell rest = {unit->at + 1, unit->length ? unit->length - 1 : 0};
        if (!unit->length || units[i].kind == NCU_PERCENT || !csv_is(&rest, units[i].word) || prefix(*unit->at) == 0)
            continue;
        *factor = prefix(*unit->at);
        return units[i].kind;
    }
    return NCU_NUMBER;
}
