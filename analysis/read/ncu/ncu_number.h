/* ncu_number.h - reads the numbers and units that Nsight Compute prints: 9,096.60 or 9.096,60; Kbyte, msecond, Ghz. */
#ifndef TFA_NCU_NUMBER_H
#define TFA_NCU_NUMBER_H

#include "read/ncu/csv.h"

enum ncu_kind { NCU_NUMBER, NCU_PERCENT, NCU_SECONDS, NCU_BYTES, NCU_SPEED };

/* Which sign stands before the decimals of a file's numbers. One number may leave it open (1,234), all together do not. */
struct ncu_locale {
    uint64_t commas, points; /* numbers that only make sense with one or the other */
};
void ncu_locale_add(struct ncu_locale *locale, const struct csv_cell *number);
/* Returns the number, NAN if the cell has none. */
double ncu_number(const struct ncu_locale *locale, const struct csv_cell *number);
/* Sets the factor that brings a number of this unit to percent, seconds, bytes or bytes a second. Returns its kind. */
enum ncu_kind ncu_unit(const struct csv_cell *unit, double *factor);

#endif
