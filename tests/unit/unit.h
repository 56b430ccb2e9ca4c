/* unit.h - runs the test cases of a unit test. */
#ifndef UNIT_H
#define UNIT_H

#include <check.h>

/* Returns the exit status of the program; CK_VERBOSITY and the other variables of Check apply. */
static inline int unit_run(TCase *tests)
{
    Suite *suite = suite_create("unit");
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}

#endif
