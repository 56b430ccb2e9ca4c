/* tfinject.h - declares stages and marks for C and C++ programs, without NVTX and without linking anything.
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
 * The functions are weak symbols of libtfinject.so, so nothing has to be linked. Without the library (no LD_PRELOAD)
 * each use is one compare with zero, and the name is not even evaluated. The functions work only where the library is
 * preloaded or linked. If only CUDA_INJECTION64_PATH names the library, they do nothing, and NVTX works.
 *
 * Names are zero-terminated bytes, UTF-8 by custom. They are copied; beyond 65,536 bytes they are cut. NULL is a stage
 * without a name. Any thread may call these functions at any time, also in forked children. They never make the program
 * fail, keep errno and allocate nothing from its heap. The ranges nest with those of NVTX's default domain.
 */
#ifndef TFINJECT_H
#define TFINJECT_H

#include <stdint.h>

/* Push and pop return this where nothing is recorded, as NVTX does. */
#define TFI_NOT_RECORDED (-2)

#ifndef TFI_API
#define TFI_API __attribute__((weak))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a stage in this thread; returns how many were open before it, from 0. */
TFI_API int tfi_range_push(const char *name);

/* Closes this thread's innermost stage; returns how many are still open, -1 if none was. */
TFI_API int tfi_range_pop(void);

/* Opens a stage that any thread may end; returns its id, 0 where nothing is recorded. */
TFI_API uint64_t tfi_range_start(const char *name);

/* Ends a stage that tfi_range_start() opened. 0 does nothing. An id that is not open (ended before, or of a parent
 * process) is only counted. */
TFI_API void tfi_range_end(uint64_t id);

/* A moment with a name. */
TFI_API void tfi_mark(const char *name);

#ifdef __cplusplus
}
#endif

#ifndef TFI_NO_MACROS

/* Address of a function of the library, null where the library is absent. It is read from the table that the dynamic
 * linker fills in: when a position-dependent program is linked, the plain address of a weak symbol is fixed as null. */
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

/* A stage that is open as long as the object lives. The thread that made the object must destroy it. */
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
