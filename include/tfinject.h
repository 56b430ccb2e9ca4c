/* tfinject.h - stages and marks for C and C++ programs, without NVTX and without linking anything.
 *
 *     #include <tfinject.h>
 *
 *     tfi_range_push("denoise");              // a stage, up to the matching pop in the same thread
 *     for (int i = 0; i < steps; i++) {
 *         tfi_range_push("step");             // stages nest
 *         step(i);
 *         tfi_range_pop();
 *     }
 *     tfi_range_pop();
 *
 *     uint64_t id = tfi_range_start("upload");  // a stage that any thread may end, in any order
 *     tfi_range_end(id);
 *
 *     tfi_mark("first image");                // a moment
 *
 *     { tfi::range stage("decode"); ... }     // C++: until the end of the scope, exceptions included
 *
 * The functions are weak symbols of libtfinject.so. Without it (no LD_PRELOAD) each use is one compare with zero and the
 * name is not even evaluated; nothing has to be linked. The library is found only where it is preloaded or linked, not
 * where CUDA_INJECTION64_PATH alone names it: NVTX works there.
 *
 * Names are bytes that end with zero, UTF-8 by custom; they are copied, NULL is a stage without name, beyond 65,536
 * bytes they are cut. All of it may be called from any thread at any time, also in forked children, never fails the
 * program, leaves errno alone and allocates nothing from its heap. The ranges nest with those of NVTX's default domain.
 */
#ifndef TFINJECT_H
#define TFINJECT_H

#include <stdint.h>

/* What push and pop return where nothing is recorded; NVTX says the same. */
#define TFI_NOT_RECORDED (-2)

#ifndef TFI_API
#define TFI_API __attribute__((weak))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a stage in this thread; returns how many were open before it, from 0. */
TFI_API int tfi_range_push(const char *name);

/* Closes the innermost one; returns how many are still open, -1 if none was. */
TFI_API int tfi_range_pop(void);

/* Opens a stage that any thread may end; returns its id, 0 where nothing is recorded. */
TFI_API uint64_t tfi_range_start(const char *name);

/* Ends it. 0 does nothing; an id that is not open (ended before, or a parent process's) is only counted. */
TFI_API void tfi_range_end(uint64_t id);

/* A moment with a name. */
TFI_API void tfi_mark(const char *name);

#ifdef __cplusplus
}
#endif

#ifndef TFI_NO_MACROS

/* Address of a function of the library, null where the library is not. It is taken from the table that the dynamic
 * linker fills in: the plain address of a weak symbol is fixed as null when a position-dependent program is linked. */
#ifdef __x86_64__
#define TFI_ADDRESS(function)                                                                                          \
    static inline __typeof__(&function) tfi_at_##function(void)                                                        \
    {                                                                                                                  \
        __typeof__(&function) address;                                                                                 \
        __asm__(".weak " #function "\n\tmovq " #function "@GOTPCREL(%%rip), %0" : "=r"(address));                      \
        return address;                                                                                                \
    }
#else
#define TFI_ADDRESS(function)                                                                                          \
    static inline __typeof__(&function) tfi_at_##function(void)                                                        \
    {                                                                                                                  \
        return function;                                                                                               \
    }
#endif
TFI_ADDRESS(tfi_range_push)
TFI_ADDRESS(tfi_range_pop)
TFI_ADDRESS(tfi_range_start)
TFI_ADDRESS(tfi_range_end)
TFI_ADDRESS(tfi_mark)
#undef TFI_ADDRESS

#define tfi_range_push(name) (tfi_at_tfi_range_push() ? tfi_at_tfi_range_push()(name) : TFI_NOT_RECORDED)
#define tfi_range_pop() (tfi_at_tfi_range_pop() ? tfi_at_tfi_range_pop()() : TFI_NOT_RECORDED)
#define tfi_range_start(name) (tfi_at_tfi_range_start() ? tfi_at_tfi_range_start()(name) : (uint64_t)0)
#define tfi_range_end(id) (tfi_at_tfi_range_end() ? tfi_at_tfi_range_end()(id) : (void)0)
#define tfi_mark(name) (tfi_at_tfi_mark() ? tfi_at_tfi_mark()(name) : (void)0)

#ifdef __cplusplus
namespace tfi
{

/* A stage for as long as the object lives; it must die in the thread that made it. */
class range
{
  public:
    explicit range(const char *name)
    {
        (void)tfi_range_push(name);
    }
    ~range()
    {
        (void)tfi_range_pop();
    }
    range(const range &) = delete;
    range &operator=(const range &) = delete;
};

} // namespace tfi
#endif
#endif

#endif
