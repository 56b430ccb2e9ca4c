/* cxx.h - reads and frees the strings and vectors of C++ that libtorch's functions return, in libstdc++'s layout.
 *
 * libstdc++ has two layouts of std::string, and PyPI's wheels of torch up to 2.6 have the old one. There the object is one
 * pointer to the characters, behind the string's length, capacity and number of users. Functions that take or return
 * strings have other symbols then (struct tfi_torch_function).
 *
 * A program may have its own operator new and operator delete. libtorch then takes memory from them, and only they can
 * take it back.
 */
#ifndef TFI_TORCH_CXX_H
#define TFI_TORCH_CXX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for a std::string of either layout. */
struct tfi_cxx_string {
    char *bytes;
    size_t length; /* this and the following are not there in the old layout */
    char in_place[16];
};

/* The characters of a std::string, ended by a zero. */
struct tfi_cxx_text {
    const char *bytes;
    size_t length;
};

/* A std::string of our own that libtorch may read, and may not keep or free. */
struct tfi_cxx_borrowed {
    struct tfi_cxx_string string;
    struct {
        size_t length, capacity;
        int64_t users; /* -1: whoever copies the string copies its characters */
        char bytes[64];
    } old;
};

/* std::vector. */
struct tfi_cxx_vector {
    char *begin, *end, *limit;
};

/* A function of libtorch, and the pointer that gets its address; NULL if libtorch lacks it. */
struct tfi_torch_function {
    const char *symbol;
    void *place;
    const char *old; /* the symbol where strings have the old layout (cxx.h), NULL if it is the same */
};
void tfi_torch_find(void *library, const struct tfi_torch_function *functions, size_t count);

/* Finds out which layout libtorch has, and the functions that free, as an open library would; false if one is missing.
 * Called before the others. */
bool tfi_cxx_init(void *library);

/* True if libtorch has the old layout of strings. */
bool tfi_cxx_is_old(void);

/* The number of bytes of a std::string. */
size_t tfi_cxx_string_bytes(void);

struct tfi_cxx_text tfi_cxx_text(const void *string);

/* Makes the string; false if the text is too long for the old layout. */
bool tfi_cxx_borrow(struct tfi_cxx_borrowed *borrowed, const char *text);

void tfi_cxx_string_end(struct tfi_cxx_string *string);

/* Frees a vector whose elements own nothing. */
void tfi_cxx_vector_end(const struct tfi_cxx_vector *vector);

/* Frees a vector of strings. */
void tfi_cxx_strings_end(const struct tfi_cxx_vector *strings);

#endif
