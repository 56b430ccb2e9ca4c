/* cxx.c - reads strings of both layouts, and finds the destructor of strings and operator delete where libtorch finds them.
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
    bool is_old;
} cxx;

bool tfi_cxx_init(void *library)
{
    static const struct tfi_torch_function functions[] = {
        {"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev", &cxx.string_end, "_ZNSsD1Ev"},
        {"_ZdlPv", &cxx.delete, NULL},
    };
    /* a function that returns strings: its symbol says which layout they have */
    cxx.is_old = tfi_dlsym(library, "_ZN5torch8profiler4impl10inputTypesERKN2at14RecordFunctionE") != NULL;
    for (size_t i = 0; i < TFI_COUNT(functions); i++) {
        tfi_torch_find(RTLD_DEFAULT, &functions[i], 1);
        void *found;
        memcpy(&found, functions[i].place, sizeof found);
        if (!found) tfi_torch_find(library, &functions[i], 1);
    }
    return cxx.string_end && cxx.delete;
}

bool tfi_cxx_is_old(void)
{
    return cxx.is_old;
}

size_t tfi_cxx_string_bytes(void)
{
    return cxx.is_old ? sizeof(char *) : sizeof(struct tfi_cxx_string);
}

struct tfi_cxx_text tfi_cxx_text(const void *string)
{
    struct tfi_cxx_text text;
    memcpy(&text.bytes, string, sizeof text.bytes);
    const char *length = cxx.is_old ? text.bytes - offsetof(struct tfi_cxx_borrowed, old.bytes) +
                                          offsetof(struct tfi_cxx_borrowed, old.length)
                                    : (const char *)string + offsetof(struct tfi_cxx_string, length);
    memcpy(&text.length, length, sizeof text.length);
    return text;
}

bool tfi_cxx_borrow(struct tfi_cxx_borrowed *borrowed, const char *text)
{
    size_t length = strlen(text);
    borrowed->string = (struct tfi_cxx_string){.bytes = (char *)(uintptr_t)text, .length = length};
    if (!cxx.is_old) return true;
    if (length >= sizeof borrowed->old.bytes) return false;
    borrowed->old.length = borrowed->old.capacity = length;
    borrowed->old.users = -1;
    memcpy(borrowed->old.bytes, text, length + 1);
    borrowed->string.bytes = borrowed->old.bytes;
    return true;
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
    for (char *at = strings->begin; at < strings->end; at += tfi_cxx_string_bytes())
        cxx.string_end((struct tfi_cxx_string *)at);
    tfi_cxx_vector_end(strings);
}

void tfi_torch_find(void *library, const struct tfi_torch_function *functions, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *old = tfi_cxx_is_old() ? functions[i].old : NULL;
        void *found = tfi_dlsym(library, old ? old : functions[i].symbol);
        memcpy(functions[i].place, &found, sizeof found);
    }
}
