/* libforeign.c - has functions of its own with names of dftracer's interface, and other arguments. */
#include <stdio.h>

/* Registers of both kinds, the stack, and a structure in memory. */
struct wide {
    double x, y, z;
};
double initialize_region(double a, int b, float c, long d, double e, int f, int g, int h, int i, long on_stack,
                         struct wide wide);
int update_metadata_int(const char *format, ...);
void finalize(void);
void foreign_calls(void);

static int calls; /* of this copy of the library */

double initialize_region(double a, int b, float c, long d, double e, int f, int g, int h, int i, long on_stack,
                         struct wide wide)
{
    calls++;
    return a + b + (double)c + (double)d + e + f + g + h + i + (double)on_stack + wide.x + wide.y + wide.z;
}

int update_metadata_int(const char *format, ...)
{
    __builtin_va_list list;
    __builtin_va_start(list, format);
    int length = vprintf(format, list);
    __builtin_va_end(list);
    return length;
}

void finalize(void)
{
    printf("%d calls\n", calls);
}

void foreign_calls(void)
{
    for (int i = 0; i < 2; i++) {
        struct wide wide = {0.5, 0.25, 0.125};
        printf("%g\n", initialize_region(1.5, 2, 4.25f, 8, 16.5, 32, 64, 128, 256, 1L << 40, wide));
        printf("%d\n", update_metadata_int("%s %g %d %g\n", "text", 2.5, 7, 1e9));
    }
    finalize();
    fflush(stdout);
}
