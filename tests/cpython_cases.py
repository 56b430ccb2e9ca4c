"""cpython_cases - runs one module of CPython's own tests and writes the outcome of each test case, as JSON.

    python3 cpython_cases.py MODULE RESULT.json [CASE...]

It runs in the interpreter under test, so it imports only the standard library. CASE is Class or Class.method.
"""

import json
import os
import sys
import unittest


class Result(unittest.TextTestResult):
    """Keeps the worst outcome of each case and its subtests."""
    order = 'ok', 'skip', 'expected failure', 'unexpected success', 'fail', 'error'

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.cases = {}

    def note(self, test, outcome):
        name = getattr(test, 'test_case', test).id()
        self.cases[name] = max(self.cases.get(name, 'ok'), outcome, key=self.order.index)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, 'ok')

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, 'error')

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, 'fail')

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, 'skip')

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.note(test, 'expected failure')

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.note(test, 'unexpected success')

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, 'fail' if issubclass(err[0], test.failureException) else 'error')


def main():
    module, path, *names = sys.argv[1:]
    load = unittest.defaultTestLoader
    suite = load.loadTestsFromNames([f'{module}.{n}' for n in names] or [module])
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Result).run(suite)
    with open(path, 'w') as f:
        json.dump({'pid': os.getpid(), 'started': result.testsRun, 'cases': result.cases}, f)


if __name__ == '__main__':
    main()
