/* preload_cxx.c - strings of both layouts of libstdc++, returned by a library and given to it. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "torch/cxx.h"
#include "torch/torch.h"
#include "unit.h"

/* Opens the library of one layout, which lies beside this program. */
static void *library_of(bool old)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    ck_assert_int_gt(length, 0);
    path[length] = 0;
    strcpy(strrchr(path, '/') + 1, old ? "strings_old.so" : "strings_new.so");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ck_assert_msg(library != NULL, "%s: %s", path, dlerror());
    ck_assert(tfi_cxx_init(library));
    ck_assert(tfi_cxx_is_old() == old);
    return library;
}

START_TEST(test_returned)
{
    struct tfi_cxx_vector *(*types)(struct tfi_cxx_vector * result, const void *function) = NULL;
    static const char *const expected[] = {"float", "", "a type whose name is longer than the room in the string"};
    const struct tfi_torch_function function = {"_ZN5torch8profiler4impl10inputTypesB5cxx11ERKN2at14RecordFunctionE",
                                                &types, "_ZN5torch8profiler4impl10inputTypesERKN2at14RecordFunctionE"};
    struct tfi_cxx_vector names;
    tfi_torch_find(library_of(_i), &function, 1);
    ck_assert_ptr_nonnull(types);
    types(&names, NULL);
    ck_assert_uint_eq((size_t)(names.end - names.begin), 3 * tfi_cxx_string_bytes());
    for (size_t i = 0; i < 3; i++) {
        struct tfi_cxx_text text = tfi_cxx_text(names.begin + i * tfi_cxx_string_bytes());
        ck_assert_str_eq(text.bytes, expected[i]);
        ck_assert_uint_eq(text.length, strlen(expected[i]));
    }
    tfi_cxx_strings_end(&names);
}
END_TEST

START_TEST(test_given)
{
    void *library = library_of(_i);
    const char *(*copy)(const void *text) = NULL;
    *(void **)&copy = dlsym(library, "kept_copy");
    ck_assert_ptr_nonnull(copy);
    struct tfi_cxx_borrowed text;
    char *name = strdup("aten::conv2d"); /* what libtorch kept must not be these bytes */
    ck_assert(tfi_cxx_borrow(&text, name));
    const char *kept = copy(&text.string);
    memset(name, 'x', strlen(name));
    memset(&text, 'x', sizeof text);
    ck_assert_str_eq(kept, "aten::conv2d!");
    free(name);
}
END_TEST

START_TEST(test_too_long)
{
    struct tfi_cxx_borrowed text;
    char name[sizeof text.old.bytes + 1];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = 0;
    library_of(_i);
    ck_assert(tfi_cxx_borrow(&text, name) == !_i);
    name[sizeof name - 2] = 0;
    ck_assert(tfi_cxx_borrow(&text, name));
    ck_assert_uint_eq(tfi_cxx_text(&text.string).length, sizeof name - 2);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("cxx");
    tcase_add_loop_test(tests, test_returned, 0, 2);
    tcase_add_loop_test(tests, test_given, 0, 2);
    tcase_add_loop_test(tests, test_too_long, 0, 2);
    return unit_run(tests);
}
