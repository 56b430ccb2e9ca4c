/* hidden_originals.h - finds originals that lie in no library of their table: renamed copies, and code linked into a plugin. */
#ifndef TFI_HIDDEN_ORIGINALS_H
#define TFI_HIDDEN_ORIGINALS_H

/* The function that the caller would have reached without this library: the next definition in the ordinary search
 * order, else the one that only the caller's object sees. NULL if there is none. Takes the loader's lock. */
void *tfi_elsewhere(unsigned hook, const char *symbol, const void *caller);

/* The answer to an earlier look-up from the same page of code, NULL if it has to be made again. Takes no lock. */
void *tfi_elsewhere_known(unsigned hook, const void *caller);

#endif
