/* whole_values.c - prints what the sums of a whole run tell of single values. */
#include "write/rows/whole_values.h"

static void emit_told(struct emit *e, const char *key, int64_t value, bool known)
{
    if (known) emit_us(e, key, value);
    else emit_null(e, key);
}

void emit_whole_values(struct emit *e, const struct whole_sum *sum)
{
    int64_t median = sum ? whole_quantile(sum, 0.5) : -1, p95 = sum ? whole_quantile(sum, 0.95) : -1;
    emit_told(e, "median_us", median, median >= 0);
    emit_told(e, "p95_us", p95, p95 >= 0);
    emit_told(e, "min_us", sum ? sum->least : 0, sum);
    emit_told(e, "max_us", sum ? sum->most : 0, sum);
}
