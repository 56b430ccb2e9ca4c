/* glibc_math.h - binds functions of libm to their oldest versions, as glibc.h does others; for the files that use them. */
#ifndef TFI_GLIBC_MATH_H
#define TFI_GLIBC_MATH_H

#include <math.h>

#if defined __x86_64__ && !defined __SANITIZE_ADDRESS__
__asm__(".symver exp, exp@GLIBC_2.2.5");
__asm__(".symver hypot, hypot@GLIBC_2.2.5");
__asm__(".symver log, log@GLIBC_2.2.5");
#endif

#endif
