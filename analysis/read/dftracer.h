/* dftracer.h - recognises traces of dftracer (.pfw), which are not read yet. */
#ifndef TFA_DFTRACER_H
#define TFA_DFTRACER_H

#include "base/file_in.h"

bool is_dftracer_name(const char *name);
/* Decides by the first bytes of the file, packed or not, whatever its name is. */
bool is_dftracer_file(const char *path, enum file_how how);

#endif
