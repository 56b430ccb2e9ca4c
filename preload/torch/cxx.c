/* cxx.c - finds the destructor of strings and operator delete where libtorch finds them.
 *
 * A library's symbols are looked up in the global scope first: the program, its libraries and preloaded ones. The
 * library's own libraries come second. An operator delete of the program's is in the global scope.
 */
#include "torch/cxx.h"

#include <dlfcn.h>
#include <string.h>

#include "base/raw_dlsym.h"
#include "torch/torch.h"

static struct {
    void (*string_end)(struct tfi_cxx_string *string);
    void (*delete)(void *memory);
} cxx;

bool tfi_cxx_init(void *library)
{
    static const struct tfi_torch_function functions[] = {
        {"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev", &cxx.string_end},
        {"_ZdlPv", &cxx.delete},
    };
    for (size_t i = 0; i < TFI_COUNT(functions); i++) {
        tfi_torch_find(RTLD_DEFAULT, &functions[i], 1);
        void *found;
        memcpy(&found, functions[i].place, sizeof found);
        if (!found) tfi_torch_find(library, &functions[i], 1);
    }
    return cxx.string_end && cxx.delete;
}

void tfi_cxx_string_end(struct tfi_cxx_string *string)
{
    cxx.string_end(string);
}

void tfi_cxx_vector_end(const struct tfi_cxx_vector *vector)
{
    if (vector->begin) cxx.delete(vector->begin);
}

void tfi_cxx_strings_end(const struct tfi_cxx_vector *strings)
{
    for (char *at = strings->begin; at < strings->end; at += sizeof(struct tfi_cxx_string))
        cxx.string_end((struct tfi_cxx_string *)at);
    tfi_cxx_vector_end(strings);
}
