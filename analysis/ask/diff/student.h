/* student.h - Student's t distribution. */
#ifndef TFA_DIFF_STUDENT_H
#define TFA_DIFF_STUDENT_H

/* Returns the probability of a value above `t`, for t of at least 0. */
double student_above(double t, double freedom);
/* Returns the value that is exceeded with the probability `above`, which is above 0 and at most a half. */
double student_bound(double above, double freedom);

#endif
