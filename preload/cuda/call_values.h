/* call_values.h - computes values of a call's record that are more than its arguments. */
#ifndef TFI_CALL_VALUES_H
#define TFI_CALL_VALUES_H

#include <stddef.h>
#include <stdint.h>

/* Called between the two halves of a call: the string of a text, the string of a kernel's name (0 if unknown), and
 * the sum of an array. They keep errno. */
uint64_t tfi_cuda_text(const char *text);
uint64_t tfi_cuda_kernel(uint64_t handle);
uint64_t tfi_cuda_sum(const size_t *array, size_t count);

#endif
