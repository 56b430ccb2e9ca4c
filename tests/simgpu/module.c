/* module.c - modules, libraries and their kernels and variables, by name.
 *
 * A binary image is never read: it has a kernel and a variable of any name, and each variable has 64 KiB. PTX text is a
 * documented format: the entries and the sizes of the variables come from it, so a wrong name is CUDA_ERROR_NOT_FOUND.
 * A CUlibrary is a module here and a CUkernel is a function, so either handle works in every call.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

#define BINARY_VARIABLE 65536

static bool is_text(const char *image)
{
    for (int i = 0; i < 8; i++)
        if (!isprint((unsigned char)image[i]) && !isspace((unsigned char)image[i])) return i > 0 && !image[i];
    return true;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$';
}

/* Returns the next place of a whole word in the text. */
static const char *word(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = strstr(text, name); at; at = strstr(at + 1, name))
        if ((at == text || !is_name(at[-1])) && !is_name(at[n])) return at;
    return NULL;
}

static bool has_entry(const char *ptx, const char *name)
{
    for (const char *at = strstr(ptx, ".entry"); at; at = strstr(at + 6, ".entry")) {
        const char *found = at + 6 + strspn(at + 6, " \t\r\n");
        if (strncmp(found, name, strlen(name)) == 0 && !is_name(found[strlen(name)])) return true;
    }
    return false;
}

/* Returns the bytes of a variable, from its declaration `.global .align 4 .b8 name[12];`; 0 if there is none. */
static size_t variable_size(const char *ptx, const char *name)
{
    const char *at = word(ptx, name), *start = at;
    if (!at) return 0;
    while (start > ptx && start[-1] != ';' && start[-1] != '}' && start[-1] != '{') start--;
    size_t length = (size_t)(at - start), bits = 0;
    char *line = strndup(start, length);
    bool variable = strstr(line, ".global") || strstr(line, ".const");
    for (const char *type = strrchr(line, '.'); type && !bits; type = NULL) bits = strtoul(type + 2, NULL, 10);
    free(line);
    at += strlen(name);
    return !variable || !bits ? 0 : bits / 8 * (*at == '[' ? strtoul(at + 1, NULL, 10) : 1);
}

static CUresult load(struct CUmod_st **module, const void *image, bool library)
{
    LOCKED;
    struct CUctx_st *ctx = NULL;
    NEED_VALUE(module && image);
    if (!library) TRY(sim_ctx(&ctx));
    struct CUmod_st *m = *module = sim_new(MODULE, sizeof *m, ctx);
    m->library = library;
    m->ptx = is_text(image) ? strdup(image) : NULL;
    return CUDA_SUCCESS;
}

static CUresult load_file(struct CUmod_st **module, const char *path, bool library)
{
    FILE *f = path ? fopen(path, "re") : NULL;
    NEED(f, CUDA_ERROR_FILE_NOT_FOUND);
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    char *image = calloc(1, (size_t)size + 16);
    size_t n = fread(image, 1, (size_t)size, f);
    fclose(f);
    CUresult result = n == (size_t)size ? load(module, image, library) : CUDA_ERROR_INVALID_IMAGE;
    free(image);
    return result;
}

static CUresult unload(struct CUmod_st *m)
{
    LOCKED;
    NEED(is(m, MODULE), CUDA_ERROR_INVALID_HANDLE);
    for (size_t i = 0; i < m->nr_functions; i++) sim_delete(m->functions[i]);
    for (size_t i = 0; i < m->nr_globals; i++) {
        sim_free((void *)m->globals[i].address, SIMGPU_DEVICE);
        free(m->globals[i].name);
    }
    free(m->functions);
    free(m->globals);
    free(m->ptx);
    sim_delete(m);
    return CUDA_SUCCESS;
}

static CUresult function(struct CUfunc_st **out, struct CUmod_st *m, const char *name)
{
    LOCKED;
    NEED_VALUE(out && name);
    NEED(is(m, MODULE), CUDA_ERROR_INVALID_HANDLE);
    for (size_t i = 0; i < m->nr_functions; i++) {
        *out = m->functions[i];
        if (strcmp(m->functions[i]->name, name) == 0) return CUDA_SUCCESS;
    }
    NEED(!m->ptx || has_entry(m->ptx, name), CUDA_ERROR_NOT_FOUND);
    struct CUfunc_st *f = *out = sim_new(FUNCTION, sizeof *f, m->head.ctx);
    f->module = m;
    f->name = sim_intern(name);
    f->cost = sim_cost_of(name);
    f->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024;
    f->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS] = 32;
    f->attributes[CU_FUNC_ATTRIBUTE_PTX_VERSION] = f->attributes[CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90;
    f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
    m->functions = sim_grow(m->functions, m->nr_functions, sizeof *m->functions);
    m->functions[m->nr_functions++] = f;
    return CUDA_SUCCESS;
}

/* The first query of a name makes the variable, in host memory. All devices share it, and it outlives its context. */
static CUresult variable(CUdeviceptr_v2 *dptr, size_t *bytes, struct CUmod_st *m, const char *name)
{
    LOCKED;
    struct CUctx_st *ctx;
    void *base;
    NEED_VALUE(name);
    NEED(is(m, MODULE), CUDA_ERROR_INVALID_HANDLE);
    TRY(sim_ctx(&ctx));
    struct global *g = NULL;
    for (size_t i = 0; i < m->nr_globals; i++)
        if (strcmp(m->globals[i].name, name) == 0) g = &m->globals[i];
    if (!g) {
        size_t size = m->ptx ? variable_size(m->ptx, name) : BINARY_VARIABLE;
        NEED(size, CUDA_ERROR_NOT_FOUND);
        TRY(sim_alloc(NULL, ctx->device, size, SIMGPU_DEVICE, NULL, &base));
        m->globals = sim_grow(m->globals, m->nr_globals, sizeof *m->globals);
        g = &m->globals[m->nr_globals++];
        *g = (struct global){strdup(name), (CUdeviceptr_v2)base, size};
    }
    if (dptr) *dptr = g->address;
    if (bytes) *bytes = g->size;
    return CUDA_SUCCESS;
}

static CUresult functions(struct CUfunc_st **out, unsigned n, struct CUmod_st *m)
{
    LOCKED;
    NEED_VALUE(out || !n);
    NEED(is(m, MODULE), CUDA_ERROR_INVALID_HANDLE);
    for (unsigned i = 0; i < n && i < m->nr_functions; i++) out[i] = m->functions[i];
    return CUDA_SUCCESS;
}
static CUresult count(unsigned *n, struct CUmod_st *m)
{
    NEED_VALUE(n);
    NEED(is(m, MODULE), CUDA_ERROR_INVALID_HANDLE);
    *n = (unsigned)m->nr_functions;
    return CUDA_SUCCESS;
}

/* ---- modules and libraries ---- */

typedef struct CUmod_st *mod;
typedef struct CUfunc_st *fun;

API(cuModuleLoad, (CUmodule * module, const char *path), (module, path))
{
    return load_file(module, path, false);
}
API(cuModuleLoadData, (CUmodule * module, const void *image), (module, image))
{
    return load(module, image, false);
}
API(cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned n, CUjit_option *options, void **values),
    (module, image, n, options, values))
{
    return load(module, image, false);
}
API(cuModuleLoadFatBinary, (CUmodule * module, const void *image), (module, image))
{
    return load(module, image, false);
}
API(cuModuleUnload, (CUmodule module), (module))
{
    return unload(module);
}
API(cuModuleGetFunction, (CUfunction * f, CUmodule module, const char *name), (f, module, name))
{
    return function(f, module, name);
}
API(cuModuleGetFunctionCount, (unsigned *n, CUmodule module), (n, module))
{
    return count(n, module);
}
API(cuModuleEnumerateFunctions, (CUfunction * f, unsigned n, CUmodule module), (f, n, module))
{
    return functions(f, n, module);
}
API(cuModuleGetGlobal_v2, (CUdeviceptr_v2 * dptr, size_t *bytes, CUmodule module, const char *name),
    (dptr, bytes, module, name))
{
    return variable(dptr, bytes, module, name);
}
API(cuModuleGetLoadingMode, (CUmoduleLoadingMode * mode), (mode))
{
    NEED_VALUE(mode);
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}
API(cuLibraryLoadData,
    (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values, unsigned n, CUlibraryOption *options,
     void **values, unsigned m),
    (library, code, jit, jit_values, n, options, values, m))
{
    return load((mod *)library, code, true);
}
API(cuLibraryLoadFromFile,
    (CUlibrary * library, const char *path, CUjit_option *jit, void **jit_values, unsigned n, CUlibraryOption *options,
     void **values, unsigned m),
    (library, path, jit, jit_values, n, options, values, m))
{
    return load_file((mod *)library, path, true);
}
API(cuLibraryUnload, (CUlibrary library), (library))
{
    return unload((mod)library);
}
API(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name), (kernel, library, name))
{
    return function((fun *)kernel, (mod)library, name);
}
API(cuLibraryGetKernelCount, (unsigned *n, CUlibrary library), (n, library))
{
    return count(n, (mod)library);
}
API(cuLibraryEnumerateKernels, (CUkernel * kernels, unsigned n, CUlibrary library), (kernels, n, library))
{
    return functions((fun *)kernels, n, (mod)library);
}
API(cuLibraryGetModule, (CUmodule * module, CUlibrary library), (module, library))
{
    NEED_VALUE(module);
    NEED(is(library, MODULE), CUDA_ERROR_INVALID_HANDLE);
    *module = (mod)library;
    return CUDA_SUCCESS;
}
API(cuLibraryGetGlobal, (CUdeviceptr_v2 * dptr, size_t *bytes, CUlibrary library, const char *name),
    (dptr, bytes, library, name))
{
    return variable(dptr, bytes, (mod)library, name);
}
API(cuLibraryGetManaged, (CUdeviceptr_v2 * dptr, size_t *bytes, CUlibrary library, const char *name),
    (dptr, bytes, library, name))
{
    return variable(dptr, bytes, (mod)library, name);
}

/* ---- functions and kernels ---- */

struct CUfunc_st *sim_function(CUfunction handle)
{
    return is(handle, FUNCTION) ? (fun)handle : NULL;
}

static CUresult get_attribute(int *value, CUfunction_attribute what, CUfunction f)
{
    NEED_VALUE(value && (unsigned)what < CU_FUNC_ATTRIBUTE_MAX);
    NEED(sim_function(f), CUDA_ERROR_INVALID_HANDLE);
    *value = ((fun)f)->attributes[what];
    return CUDA_SUCCESS;
}
static CUresult set_attribute(CUfunction_attribute what, int value, CUfunction f)
{
    NEED_VALUE((unsigned)what < CU_FUNC_ATTRIBUTE_MAX);
    NEED(sim_function(f), CUDA_ERROR_INVALID_HANDLE);
    NEED_VALUE(what != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || (value >= 0 && value <= 232448));
    ((fun)f)->attributes[what] = value;
    return CUDA_SUCCESS;
}
static CUresult name_of(const char **name, CUfunction f)
{
    NEED_VALUE(name);
    NEED(sim_function(f), CUDA_ERROR_INVALID_HANDLE);
    *name = ((fun)f)->name;
    return CUDA_SUCCESS;
}
static CUresult known(CUfunction f)
{
    return sim_function(f) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API(cuFuncGetAttribute, (int *value, CUfunction_attribute what, CUfunction f), (value, what, f))
{
    return get_attribute(value, what, f);
}
API(cuFuncSetAttribute, (CUfunction f, CUfunction_attribute what, int value), (f, what, value))
{
    return set_attribute(what, value, f);
}
API(cuFuncSetCacheConfig, (CUfunction f, CUfunc_cache config), (f, config))
{
    return known(f);
}
API(cuFuncGetModule, (CUmodule * module, CUfunction f), (module, f))
{
    NEED_VALUE(module);
    TRY(known(f));
    *module = ((fun)f)->module;
    return CUDA_SUCCESS;
}
API(cuFuncGetName, (const char **name, CUfunction f), (name, f))
{
    return name_of(name, f);
}
API(cuFuncIsLoaded, (CUfunctionLoadingState * state, CUfunction f), (state, f))
{
    NEED_VALUE(state);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return known(f);
}
API(cuFuncLoad, (CUfunction f), (f))
{
    return known(f);
}
API(cuKernelGetFunction, (CUfunction * f, CUkernel kernel), (f, kernel))
{
    NEED_VALUE(f);
    *f = (CUfunction)kernel;
    return known((CUfunction)kernel);
}
API(cuKernelGetLibrary, (CUlibrary * library, CUkernel kernel), (library, kernel))
{
    NEED_VALUE(library);
    TRY(known((CUfunction)kernel));
    *library = (CUlibrary)((fun)kernel)->module;
    return CUDA_SUCCESS;
}
API(cuKernelGetAttribute, (int *value, CUfunction_attribute what, CUkernel kernel, CUdevice dev),
    (value, what, kernel, dev))
{
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    return get_attribute(value, what, (CUfunction)kernel);
}
API(cuKernelSetAttribute, (CUfunction_attribute what, int value, CUkernel kernel, CUdevice dev),
    (what, value, kernel, dev))
{
    NEED(sim_device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    return set_attribute(what, value, (CUfunction)kernel);
}
API(cuKernelSetCacheConfig, (CUkernel kernel, CUfunc_cache config, CUdevice dev), (kernel, config, dev))
{
    return known((CUfunction)kernel);
}
API(cuKernelGetName, (const char **name, CUkernel kernel), (name, kernel))
{
    return name_of(name, (CUfunction)kernel);
}
