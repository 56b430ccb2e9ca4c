/* uncaught.h - writes down where an exception came from that nothing caught. */
#ifndef TFI_UNCAUGHT_H
#define TFI_UNCAUGHT_H

#include "python/python.h"

/* Called with the arguments of CPython's audit event sys.excepthook, with the GIL, before the exception is printed.
 * Writes a silence record with the frames of the traceback if the process is awake. Keeps errno and the exception that
 * is set, and changes no argument. */
void tfi_raised(PyObject *args);

#endif
