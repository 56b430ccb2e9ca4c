/* unwinder.h - libunwind, as the library uses it. */
#ifndef TFI_UNWINDER_H
#define TFI_UNWINDER_H

typedef int tfi_unwinder(void **addresses, int most);

/* Loads libunwind and returns its unw_backtrace(); NULL if it was not found. */
tfi_unwinder *tfi_unwinder_load(void);

#endif
