/* blas.c - stands in for the functions of cuBLAS and cuBLASLt that torch calls: each product is one kernel that computes
 * nothing.
 *
 * The vendor's library brings a runtime of its own, which cannot start on the simulated driver. This one is preloaded;
 * functions that it lacks stay the vendor's, and torch calls none of them unless the program asks for what they do. It is
 * written from the public documentation of both interfaces. Their headers are not needed: arguments that nothing reads
 * are not declared, which the calling convention allows.
 *
 * Kernels are launched through the driver, as the vendor's own runtime does it, with one block for each 64 x 64 elements
 * of the result. A handle belongs to one device, and is used by one thread at a time.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))
enum { SUCCESS = 0, NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INTERNAL_ERROR = 14 };
enum { KERNELS = 4, TILE = 64 };
static const char *const names[KERNELS] = {"simblas_gemm", "simblas_gemv", "simblas_dot", "simblas_matmul"};
enum kernel { GEMM, GEMV, DOT, MATMUL };

struct handle {
    void *stream, *module, *function[KERNELS];
    int math_mode, pointer_mode;
};

static struct {
    int (*cuModuleLoadData)(void **module, const void *image);
    int (*cuModuleUnload)(void *module);
    int (*cuModuleGetFunction)(void **function, void *module, const char *name);
    int (*cuLaunchKernel)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                          void *stream, void **parameters, void **extra);
} driver;

static int find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!library) return 0;
#define FIND(name) *(void **)&driver.name = dlsym(library, #name);
    FIND(cuModuleLoadData)
    FIND(cuModuleUnload)
    FIND(cuModuleGetFunction)
    FIND(cuLaunchKernel)
    return driver.cuModuleLoadData && driver.cuModuleUnload && driver.cuModuleGetFunction && driver.cuLaunchKernel;
}

static int load(struct handle *h)
{
    char ptx[1024];
    size_t n = (size_t)snprintf(ptx, sizeof ptx, ".version 7.0\n.target sm_70\n.address_size 64\n");
    for (int i = 0; i < KERNELS; i++)
        n += (size_t)snprintf(ptx + n, sizeof ptx - n, ".visible .entry %s()\n{\n    ret;\n}\n", names[i]);
    if (driver.cuModuleLoadData(&h->module, ptx) != 0) return INTERNAL_ERROR;
    for (int i = 0; i < KERNELS; i++)
        if (driver.cuModuleGetFunction(&h->function[i], h->module, names[i]) != 0) return INTERNAL_ERROR;
    return SUCCESS;
}

static unsigned tiles(int64_t elements)
{
    return elements < 1 ? 1 : (unsigned)((elements + TILE - 1) / TILE);
}

static int launch(struct handle *h, enum kernel kernel, int64_t rows, int64_t columns, void *stream)
{
    if (!h) return NOT_INITIALIZED;
    return driver.cuLaunchKernel(h->function[kernel], tiles(rows), tiles(columns), 1, 128, 1, 1, 0, stream, NULL, NULL)
               ? INTERNAL_ERROR
               : SUCCESS;
}

/* ---- handles ---- */

PUBLIC int cublasCreate_v2(struct handle **handle);
int cublasCreate_v2(struct handle **handle)
{
    struct handle *h = calloc(1, sizeof *h);
    if (!h) return ALLOC_FAILED;
    int result = find_driver() ? load(h) : NOT_INITIALIZED;
    if (result != SUCCESS) free(h);
    else *handle = h;
    return result;
}

PUBLIC int cublasDestroy_v2(struct handle *h);
int cublasDestroy_v2(struct handle *h)
{
    if (h) driver.cuModuleUnload(h->module);
    free(h);
    return SUCCESS;
}

#define SET(function, type, field)                                                                                     \
    PUBLIC int function(struct handle *h, type value);                                                                 \
    int function(struct handle *h, type value)                                                                         \
    {                                                                                                                  \
        h->field = value;                                                                                              \
        return SUCCESS;                                                                                                \
    }
#define GET(function, type, field)                                                                                     \
    PUBLIC int function(const struct handle *h, type *value);                                                          \
    int function(const struct handle *h, type *value)                                                                  \
    {                                                                                                                  \
        *value = h->field;                                                                                             \
        return SUCCESS;                                                                                                \
    }
SET(cublasSetStream_v2, void *, stream)
GET(cublasGetStream_v2, void *, stream)
SET(cublasSetMathMode, int, math_mode)
GET(cublasGetMathMode, int, math_mode)
SET(cublasSetPointerMode_v2, int, pointer_mode)
GET(cublasGetPointerMode_v2, int, pointer_mode)

/* Descriptions, preferences and limits: nothing here goes by them. */
#define IGNORED(function)                                                                                              \
    PUBLIC int function(void);                                                                                         \
    int function(void)                                                                                                 \
    {                                                                                                                  \
        return SUCCESS;                                                                                                \
    }
IGNORED(cublasSetWorkspace_v2)
IGNORED(cublasSetSmCountTarget)
IGNORED(cublasLtMatmulDescSetAttribute)
IGNORED(cublasLtMatrixLayoutSetAttribute)
IGNORED(cublasLtMatmulPreferenceSetAttribute)

/* ---- products ---- */

/* (handle, transa, transb, m, n, ...) */
#define MATRIX(function)                                                                                               \
    PUBLIC int function(struct handle *h, int transa, int transb, int m, int n);                                       \
    int function(struct handle *h, int transa, int transb, int m, int n)                                               \
    {                                                                                                                  \
        (void)transa, (void)transb;                                                                                    \
        return launch(h, GEMM, m, n, h ? h->stream : NULL);                                                            \
    }
MATRIX(cublasSgemm_v2)
MATRIX(cublasDgemm_v2)
MATRIX(cublasGemmEx)
MATRIX(cublasSgemmEx)
MATRIX(cublasSgemmBatched)
MATRIX(cublasDgemmBatched)
MATRIX(cublasGemmBatchedEx)
MATRIX(cublasSgemmStridedBatched)
MATRIX(cublasDgemmStridedBatched)
MATRIX(cublasGemmStridedBatchedEx)

/* (handle, trans, m, n, ...) */
#define VECTOR(function)                                                                                               \
    PUBLIC int function(struct handle *h, int trans, int m, int n);                                                    \
    int function(struct handle *h, int trans, int m, int n)                                                            \
    {                                                                                                                  \
        (void)trans, (void)n;                                                                                          \
        return launch(h, GEMV, m, 1, h ? h->stream : NULL);                                                            \
    }
VECTOR(cublasSgemv_v2)
VECTOR(cublasDgemv_v2)

#define SCALAR(function)                                                                                               \
    PUBLIC int function(struct handle *h);                                                                             \
    int function(struct handle *h)                                                                                     \
    {                                                                                                                  \
        return launch(h, DOT, 1, 1, h ? h->stream : NULL);                                                             \
    }
SCALAR(cublasSdot_v2)
SCALAR(cublasDdot_v2)
SCALAR(cublasDotEx)

/* ---- cuBLASLt: torch passes it the handle of cuBLAS ---- */

/* A layout: its rows and columns are the second and third argument of its creation. */
struct layout {
    uint64_t rows, columns;
};

PUBLIC int cublasLtMatrixLayoutCreate(struct layout **layout, int type, uint64_t rows, uint64_t columns);
int cublasLtMatrixLayoutCreate(struct layout **layout, int type, uint64_t rows, uint64_t columns)
{
    (void)type;
    *layout = malloc(sizeof **layout);
    if (*layout) **layout = (struct layout){rows, columns};
    return *layout ? SUCCESS : ALLOC_FAILED;
}

#define DESCRIPTION(create)                                                                                            \
    PUBLIC int create(void **description);                                                                             \
    int create(void **description)                                                                                     \
    {                                                                                                                  \
        *description = calloc(1, 64);                                                                                  \
        return *description ? SUCCESS : ALLOC_FAILED;                                                                  \
    }
#define DESTROY(destroy)                                                                                               \
    PUBLIC int destroy(void *description);                                                                             \
    int destroy(void *description)                                                                                     \
    {                                                                                                                  \
        free(description);                                                                                             \
        return SUCCESS;                                                                                                \
    }
DESCRIPTION(cublasLtMatmulDescCreate)
DESCRIPTION(cublasLtMatmulPreferenceCreate)
DESTROY(cublasLtMatmulDescDestroy)
DESTROY(cublasLtMatmulPreferenceDestroy)
DESTROY(cublasLtMatrixLayoutDestroy)

/* One answer of cublasLtMatmulAlgoGetHeuristic. */
struct heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

PUBLIC int cublasLtMatmulAlgoGetHeuristic(void *, void *, void *, void *, void *, void *, void *, int,
                                          struct heuristic *, int *);
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference,
                                   int most, struct heuristic *found, int *count)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    *count = most > 0;
    if (most > 0) *found = (struct heuristic){.waves = 1};
    return SUCCESS;
}

PUBLIC int cublasLtMatmul(struct handle *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                          void *, struct layout *, void *, void *, size_t, void *);
int cublasLtMatmul(struct handle *h, void *operation, void *alpha, void *a, void *a_layout, void *b, void *b_layout,
                   void *beta, void *c, void *c_layout, void *d, struct layout *d_layout, void *algorithm,
                   void *workspace, size_t bytes, void *stream)
{
    (void)operation, (void)alpha, (void)a, (void)a_layout, (void)b, (void)b_layout, (void)beta, (void)c;
    (void)c_layout, (void)d, (void)algorithm, (void)workspace, (void)bytes;
    return launch(h, MATMUL, (int64_t)d_layout->rows, (int64_t)d_layout->columns, stream);
}
