/* cxx.h - frees the strings and vectors of C++ that libtorch's functions return, in libstdc++'s layout.
 *
 * A program may have its own operator new and operator delete. libtorch then takes memory from them, and only they can
 * take it back.
 */
#ifndef TFI_TORCH_CXX_H
#define TFI_TORCH_CXX_H

#include <stdbool.h>
#include <stddef.h>

/* std::string. */
struct tfi_cxx_string {
    char *bytes;
    size_t length;
    char in_place[16];
};

/* std::vector. */
struct tfi_cxx_vector {
    char *begin, *end, *limit;
};

/* Finds the functions that free, as an open library would; false if one is missing. Called before the others. */
bool tfi_cxx_init(void *library);

void tfi_cxx_string_end(struct tfi_cxx_string *string);

/* Frees a vector whose elements own nothing. */
void tfi_cxx_vector_end(const struct tfi_cxx_vector *vector);

/* Frees a vector of strings. */
void tfi_cxx_strings_end(const struct tfi_cxx_vector *strings);

#endif
