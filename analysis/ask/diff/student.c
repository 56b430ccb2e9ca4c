/* student.c - Student's t distribution, by the continued fraction of the incomplete beta function (DLMF 8.17.22).
 *
 * A test compares what a gate makes of it with scipy.
 */
#include "ask/diff/student.h"

#include "glibc_math.h"

enum { MOST_TERMS = 10000, MOST_STEPS = 1000 };
#define TINY 1e-300
#define CLOSE_ENOUGH 1e-14

static double not_zero(double value)
{
    return fabs(value) < TINY ? TINY : value;
}

/* Returns coefficient `n` of the continued fraction of I(x; a, b), from 1 on. */
static double coefficient(int n, double a, double b, double x)
{
    double m = floor(n / 2.0);
    if (n % 2 == 0) return m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    return -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
}

/* Returns 1 + c1 / (1 + c2 / (1 + ...)) by Lentz's method, which begins at the front. It converges fast for x below
 * (a + 1) / (a + b + 2). */
static double fraction(double a, double b, double x)
{
    double above = 1, below = 0, value = 1;
    for (int n = 1; n < MOST_TERMS; n++) {
        double c = coefficient(n, a, b, x);
        below = 1 / not_zero(1 + c * below);
        above = not_zero(1 + c / above);
        value *= above * below;
        if (fabs(above * below - 1) < CLOSE_ENOUGH) break;
    }
    return value;
}

/* Returns the regularised incomplete beta function I(x; a, b); `rest` is 1 - x, which may be too small for a difference. */
static double incomplete_beta(double a, double b, double x, double rest)
{
    if (x <= 0) return 0;
    if (rest <= 0) return 1;
    if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(b, a, rest, x);
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(rest)) / a;
    return front / fraction(a, b, x);
}

double student_above(double t, double freedom)
{
    double whole = freedom + t * t;
    return incomplete_beta(freedom / 2, .5, freedom / whole, t * t / whole) / 2;
}

/* Returns the density. */
static double density(double t, double freedom)
{
    double half = (freedom + 1) / 2;
    return exp(lgamma(half) - lgamma(freedom / 2) - half * log1p(t * t / freedom)) / sqrt(freedom * M_PI);
}

/* Newton's method: the probability is convex above 0, so that each step from 0 on comes closer and none goes too far. */
double student_bound(double above, double freedom)
{
    double t = 0, further = 1;
    for (int i = 0; i < MOST_STEPS && further > t * CLOSE_ENOUGH; i++) {
        further = (student_above(t, freedom) - above) / density(t, freedom);
        t += fmax(further, 0);
    }
    return t;
}
