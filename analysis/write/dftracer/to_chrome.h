/* to_chrome.h - gives the events of a dftracer trace to the outputs of an export, in the form of a Chrome trace. */
#ifndef TFA_TO_CHROME_H
#define TFA_TO_CHROME_H

#include "read/dftracer.h"
#include "write/export/targets.h"

/* Returns false if the file can't be read again. */
bool export_dftracer(struct targets *targets, struct notes *notes);

#endif
