/* mem_limit.h - keeps this program from taking all memory of a machine.
 *
 * A few megabytes of a compressed trace can become any number of gigabytes. With a limit an allocation fails, and the file is
 * left out; without one the kernel ends some program, this one or another.
 */
#ifndef TFA_MEM_LIMIT_H
#define TFA_MEM_LIMIT_H

/* The share of what the machine, or this program's control group, has in all. */
void mem_limit(double share);

#endif
