/* start.c - starts tfanalyze by the __libc_start_main of old C libraries, for glibc.h cannot bind the call of crt1.o.
 *
 * The linker's --wrap leads that call here. A C library of 2.34 and newer runs the program's constructors itself; the older
 * ones call the function that crt1.o hands over, and the crt1.o of a newer one has none to hand over. An old version
 * never does both: it calls the function if there is one.
 */
#if defined __x86_64__ && !defined __SANITIZE_ADDRESS__
#include <stddef.h>

typedef int main_function(int count, char **arguments, char **environment);
typedef void constructor(int count, char **arguments, char **environment);

int old_start(main_function *main, int count, char **arguments, constructor *constructors, void (*destructors)(void),
              void (*loader)(void), void *stack);
__asm__(".symver old_start, __libc_start_main@GLIBC_2.2.5");
int __wrap___libc_start_main(main_function *main, int count, char **arguments, constructor *constructors,
                             void (*destructors)(void), void (*loader)(void), void *stack);

extern constructor *__init_array_start[], *__init_array_end[];

static void run_constructors(int count, char **arguments, char **environment)
{
    size_t constructors = (size_t)(__init_array_end - __init_array_start);
    for (size_t i = 0; i < constructors; i++) __init_array_start[i](count, arguments, environment);
}

int __wrap___libc_start_main(main_function *main, int count, char **arguments, constructor *constructors,
                             void (*destructors)(void), void (*loader)(void), void *stack)
{
    return old_start(main, count, arguments, constructors ? constructors : run_constructors, destructors, loader,
                     stack);
}
#endif
