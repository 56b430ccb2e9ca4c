/* x86_64.h - has the library's code for x86-64: the counter, and exported functions that C cannot express.
 *
 * Such a function finds its target and jumps to it with the caller's stack and registers as they were, so the target
 * sees the caller's return address. The macros are assembler at file level; the file that uses one defines the C
 * function that decides, with `__attribute__((used, visibility("hidden")))`.
 */
#ifndef TFI_X86_64_H
#define TFI_X86_64_H

#ifndef __x86_64__
#error libtfinject.so is for x86-64 only. Other processors read its traces: make build/tfanalyze
#endif

#include <cpuid.h>
#include <stdbool.h>
#include <stdint.h>
#include <x86intrin.h>

static inline uint64_t tfi_counter(void)
{
    return __rdtsc();
}

/* True if the CPU says that the counter runs at one rate, whatever the clock of the cores. */
static inline bool tfi_counter_is_invariant(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8));
}

/* True if valgrind runs the process. Valgrind's documented question is a sequence of instructions that changes nothing
 * elsewhere: rotations by 128 bits in all. */
static inline bool tfi_on_valgrind(void)
{
    volatile uint64_t question[6] = {0x1001};
    uint64_t answer = 0;
    __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
                     : "+d"(answer)
                     : "a"(question)
                     : "cc", "memory");
    return answer != 0;
}

/* Starts a thread of the kernel at `run(data)` on the stack that ends at `top`, a multiple of 16, with `tls` as its thread
 * register. The kernel stores its id in `begun` before this returns, and 0 in `ended` when the thread has ended, which
 * also wakes that futex. Returns the id, or a negative errno. */
static inline long tfi_clone_thread(unsigned long flags, char *top, int *begun, int *ended, void *tls,
                                    void (*run)(void *), void *data)
{
    long result;
    register int *fourth __asm__("r10") = ended;
    register void *fifth __asm__("r8") = tls;
    void **stack = (void **)top - 2;
    stack[0] = (void *)run;
    stack[1] = data;
    __asm__ volatile("syscall\n"
                     "    test %%rax, %%rax\n"
                     "    jnz 1f\n"
                     "    xor %%ebp, %%ebp\n" /* the outermost frame */
                     "    pop %%rax\n"
                     "    pop %%rdi\n"
                     "    call *%%rax\n"
                     "    xor %%edi, %%edi\n"
                     "    mov $60, %%eax\n" /* exit, of this thread only */
                     "    syscall\n"
                     "1:\n"
                     : "=a"(result)
                     : "0"(56L), "D"(flags), "S"(stack), "d"(begun), "r"(fourth), "r"(fifth)
                     : "rcx", "r11", "memory", "cc");
    return result;
}

/* Reads the word at `offset` from the thread register. */
static inline uintptr_t tfi_tls_word(uintptr_t offset)
{
    uintptr_t word;
    __asm__ volatile("mov %%fs:(%1), %0" : "=r"(word) : "r"(offset));
    return word;
}

/* The C library keeps these at the thread register: its own address, twice, and the values that guard stacks and
 * pointers. */
enum { TFI_TLS_SELF = 0, TFI_TLS_THREAD = 16, TFI_TLS_STACK_GUARD = 40, TFI_TLS_POINTER_GUARD = 48 };

/* Exports `symbol`, a function without arguments: jumps to the address that `choose()` returns. */
#define TFI_ASM_JUMP(symbol, choose)                                                                                   \
    __asm__(".text\n"                                                                                                  \
            ".globl " #symbol "\n"                                                                                     \
            ".type " #symbol ", @function\n" #symbol ":\n"                                                             \
            "    .cfi_startproc\n"                                                                                     \
            "    endbr64\n"                                                                                            \
            "    sub $8, %rsp\n"                                                                                       \
            "    .cfi_adjust_cfa_offset 8\n"                                                                           \
            "    call " #choose "\n"                                                                                   \
            "    add $8, %rsp\n"                                                                                       \
            "    .cfi_adjust_cfa_offset -8\n"                                                                          \
            "    jmp *%rax\n"                                                                                          \
            "    .cfi_endproc\n"                                                                                       \
            ".size " #symbol ", . - " #symbol "\n")

/* Exports `symbol`, a function of two arguments. `answer(first, second, caller)` returns a struct of two words: if the
 * second one is not 0, the function returns the first one, else it jumps to the address in the variable `real`. */
#define TFI_ASM_ANSWER(symbol, answer, real)                                                                           \
    __asm__(".text\n"                                                                                                  \
            ".globl " #symbol "\n"                                                                                     \
            ".type " #symbol ", @function\n" #symbol ":\n"                                                             \
            "    .cfi_startproc\n"                                                                                     \
            "    endbr64\n"                                                                                            \
            "    push %rdi\n"                                                                                          \
            "    .cfi_adjust_cfa_offset 8\n"                                                                           \
            "    push %rsi\n"                                                                                          \
            "    .cfi_adjust_cfa_offset 8\n"                                                                           \
            "    sub $8, %rsp\n"                                                                                       \
            "    .cfi_adjust_cfa_offset 8\n"                                                                           \
            "    mov 24(%rsp), %rdx\n" /* the return address: the caller */                                            \
            "    call " #answer "\n"                                                                                   \
            "    add $8, %rsp\n"                                                                                       \
            "    .cfi_adjust_cfa_offset -8\n"                                                                          \
            "    pop %rsi\n"                                                                                           \
            "    .cfi_adjust_cfa_offset -8\n"                                                                          \
            "    pop %rdi\n"                                                                                           \
            "    .cfi_adjust_cfa_offset -8\n"                                                                          \
            "    test %rdx, %rdx\n"                                                                                    \
            "    jnz 1f\n"                                                                                             \
            "    jmp *" #real "(%rip)\n"                                                                               \
            "1:  ret\n"                                                                                                \
            "    .cfi_endproc\n"                                                                                       \
            ".size " #symbol ", . - " #symbol "\n")

/* Starts the count of the functions that TFI_ASM_CHOSEN exports. */
#define TFI_ASM_COUNT(number) __asm__(".set " #number ", 0\n")

/* Exports `symbol`, and counts it: jumps to targets[number], or, while that is NULL, to `first` with the number on the
 * stack above the return address. */
#define TFI_ASM_CHOSEN(symbol, number, targets, first)                                                                 \
    __asm__(".text\n"                                                                                                  \
            ".globl " #symbol "\n"                                                                                     \
            ".type " #symbol ", @function\n" #symbol ":\n"                                                             \
            "    .cfi_startproc\n"                                                                                     \
            "    endbr64\n"                                                                                            \
            "    mov " #targets "+8*" #number "(%rip), %r11\n"                                                         \
            "    test %r11, %r11\n"                                                                                    \
            "    jz 1f\n"                                                                                              \
            "    jmp *%r11\n"                                                                                          \
            "1:  push $" #number "\n"                                                                                  \
            "    .cfi_adjust_cfa_offset 8\n"                                                                           \
            "    jmp " #first "\n"                                                                                     \
            "    .cfi_endproc\n"                                                                                       \
            ".size " #symbol ", . - " #symbol "\n"                                                                     \
            ".set " #number ", " #number " + 1\n");

/* Defines the `first` of TFI_ASM_CHOSEN: keeps the argument registers, calls `choose(number, caller)`, and jumps to the
 * address that it returns. The upper halves of vector registers are not kept. */
#define TFI_ASM_CHOOSE(first, choose)                                                                                  \
    __asm__(".text\n"                                                                                                  \
            ".type " #first ", @function\n" #first ":\n"                                                               \
            "    .cfi_startproc\n"                                                                                     \
            "    .cfi_adjust_cfa_offset 8\n"                                                                           \
            "    push %rax\n"                                                                                          \
            "    push %rcx\n"                                                                                          \
            "    push %rdx\n"                                                                                          \
            "    push %rsi\n"                                                                                          \
            "    push %rdi\n"                                                                                          \
            "    push %r8\n"                                                                                           \
            "    push %r9\n"                                                                                           \
            "    push %r10\n"                                                                                          \
            "    .cfi_adjust_cfa_offset 64\n"                                                                          \
            "    sub $128, %rsp\n"                                                                                     \
            "    .cfi_adjust_cfa_offset 128\n"                                                                         \
            "    movups %xmm0, (%rsp)\n"                                                                               \
            "    movups %xmm1, 16(%rsp)\n"                                                                             \
            "    movups %xmm2, 32(%rsp)\n"                                                                             \
            "    movups %xmm3, 48(%rsp)\n"                                                                             \
            "    movups %xmm4, 64(%rsp)\n"                                                                             \
            "    movups %xmm5, 80(%rsp)\n"                                                                             \
            "    movups %xmm6, 96(%rsp)\n"                                                                             \
            "    movups %xmm7, 112(%rsp)\n"                                                                            \
            "    mov 192(%rsp), %rdi\n"                                                                                \
            "    mov 200(%rsp), %rsi\n"                                                                                \
            "    call " #choose "\n"                                                                                   \
            "    mov %rax, %r11\n"                                                                                     \
            "    movups (%rsp), %xmm0\n"                                                                               \
            "    movups 16(%rsp), %xmm1\n"                                                                             \
            "    movups 32(%rsp), %xmm2\n"                                                                             \
            "    movups 48(%rsp), %xmm3\n"                                                                             \
            "    movups 64(%rsp), %xmm4\n"                                                                             \
            "    movups 80(%rsp), %xmm5\n"                                                                             \
            "    movups 96(%rsp), %xmm6\n"                                                                             \
            "    movups 112(%rsp), %xmm7\n"                                                                            \
            "    add $128, %rsp\n"                                                                                     \
            "    .cfi_adjust_cfa_offset -128\n"                                                                        \
            "    pop %r10\n"                                                                                           \
            "    pop %r9\n"                                                                                            \
            "    pop %r8\n"                                                                                            \
            "    pop %rdi\n"                                                                                           \
            "    pop %rsi\n"                                                                                           \
            "    pop %rdx\n"                                                                                           \
            "    pop %rcx\n"                                                                                           \
            "    pop %rax\n"                                                                                           \
            "    .cfi_adjust_cfa_offset -64\n"                                                                         \
            "    add $8, %rsp\n"                                                                                       \
            "    .cfi_adjust_cfa_offset -8\n"                                                                          \
            "    jmp *%r11\n"                                                                                          \
            "    .cfi_endproc\n"                                                                                       \
            ".size " #first ", . - " #first "\n")

#endif
