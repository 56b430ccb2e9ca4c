/* capture_files.h - reads the traces in which the CUDA graphs of the inputs were captured. */
#ifndef TFA_CAPTURE_FILES_H
#define TFA_CAPTURE_FILES_H

#include "model/input.h"
#include "model/replays/captures.h"

/* Takes the traces of captures out of inputs that were found in directories, unless they are all. They are no ranks. */
void captures_set_aside(struct inputs *inputs);
/* Reads the files of --graph-capture; without the option those that were set aside, and the traces in the folder
 * `capture_traces` beside an input or beside its folder. `names` are those of the inputs. `details`: with inputs, modules
 * and Python frames of operators. Returns false, after messages, if one of the files is no use. */
bool captures_read(struct captures *captures, const struct options *options, bool details, const struct inputs *inputs,
                   struct names *names);

#endif
