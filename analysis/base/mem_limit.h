/* mem_limit.h - keeps this program from taking all memory of a machine.
 *
 * A few megabytes of a compressed trace can expand to any number of gigabytes. With a limit an allocation fails and
 * the file is left out. Without one the kernel kills some program, this one or another.
 */
#ifndef TFA_MEM_LIMIT_H
#define TFA_MEM_LIMIT_H

#include <stdint.h>

/* Sets the limit to this share of the memory of the machine, of that of the control group or of `most` bytes, whichever is
 * least. */
void mem_limit(double share, uint64_t most);

#endif
