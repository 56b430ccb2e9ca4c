/* file_us.c - converts times to the form of a PyTorch trace. */
#include "compat/file_us.h"

double file_us(const struct process *process, int64_t ns)
{
    /* Nanoseconds since 1970 do not fit into a double. With a long double only the result is rounded. */
    return (double)((long double)(ns - kineto_base(process)) / 1000);
}
