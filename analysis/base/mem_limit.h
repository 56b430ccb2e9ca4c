/* mem_limit.h - keeps this program from taking all memory of a machine.
 *
 * A few megabytes of a compressed trace can expand to any number of gigabytes. With a limit an allocation fails and
 * the file is left out. Without one the kernel kills some program, this one or another.
 */
#ifndef TFA_MEM_LIMIT_H
#define TFA_MEM_LIMIT_H

/* Sets the limit to this share of the memory of the machine or of the control group, whichever is less. */
void mem_limit(double share);

#endif
