/* file_us.h - times in the form of a PyTorch trace, in which other tools compute. */
#ifndef TFA_FILE_US_H
#define TFA_FILE_US_H

#include "model/model.h"

/* Converts a time of the model to the file's form: a double of microseconds since the file's own base. */
double file_us(const struct process *process, int64_t ns);

#endif
