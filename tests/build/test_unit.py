"""test_unit - every Check test function of tests/unit/*.c as one test, in the ordinary and in the sanitized build.

Each program runs once per session. A function passes if the program's TAP log has lines with its name and all of them
say ok (loop tests have several). A function in the source but in no test case is a failure.
"""

import re

import pytest

from conftest import BUILD, ROOT, built, clean_environment, execute

SOURCES = sorted((ROOT / 'tests' / 'unit').glob('*.c'))
VARIANTS = {'plain': BUILD / 'unit', 'asan': BUILD / 'asan' / 'unit'}
# Programs that contain the library define dlsym, which a sanitizer calls too early: they have no sanitized build.
BUILT = [(v, s) for v in VARIANTS for s in SOURCES if v == 'plain' or not s.stem.startswith('preload_')]
SLOW = ('kill', 'preload_blocks', 'preload_log', 'analysis_damage', 'analysis_guard', 'analysis_runs', 'analysis_sets')
# `make test` runs these in one build, and `make soak` in the other too. `kill` kills a program that has no sanitizers.
IN_SOAK = ('plain', 'analysis_damage'), ('asan', 'analysis_runs'), ('asan', 'analysis_sets'), ('asan', 'kill')


def marks(variant, program):
    slow = [pytest.mark.slow] if program in SLOW else []
    soak = [pytest.mark.soak] if (variant, program) in IN_SOAK else []
    return [pytest.mark.xdist_group(f'{variant}-{program}'), *slow, *soak]


PROGRAMS = [pytest.param(v, s.stem, id=f'{v}-{s.stem}', marks=marks(v, s.stem)) for v, s in BUILT]
FUNCTIONS = [pytest.param(v, s.stem, f, id=f'{v}-{s.stem}-{f}', marks=marks(v, s.stem))
             for v, s in BUILT for f in re.findall(r'^START_TEST\((\w+)\)', s.read_text(), re.M)]
TAP = re.compile(r'(not ok|ok) \d+ - (.*?):([^:\s]+):(\w+): ?(.*)')


@pytest.fixture(scope='session')
def outcome(tmp_path_factory):
    """outcome(variant, program): the result of its one run, kept for the session."""
    kept = {}

    def outcome(variant, program):
        if (variant, program) not in kept:
            directory = tmp_path_factory.mktemp(f'{variant}-{program}')
            log = directory / 'tap'
            env = dict(clean_environment(), CK_FORK='yes', CK_TAP_LOG_FILE_NAME=str(log), CK_DEFAULT_TIMEOUT='200',
                       TFI_TEST_DIR=str(ROOT / 'tests'))
            result = execute([built(VARIANTS[variant] / program)], env, directory)
            result.tap = log.read_text(errors='replace') if log.exists() else ''
            result.rows = {}
            for state, _, _, name, text in TAP.findall(result.tap):
                result.rows.setdefault(name, []).append((state, text))
            kept[variant, program] = result
        return kept[variant, program]
    return outcome


@pytest.mark.parametrize('variant, program, function', FUNCTIONS)
def test_function(outcome, variant, program, function):
    result = outcome(variant, program)
    rows = result.rows.get(function)
    assert rows, f'{function} was not run: no test case of {program} has it\n{result.out}{result.err}'
    assert all(state == 'ok' for state, _ in rows), f'{rows}\n{result.err[-3000:]}'


@pytest.mark.parametrize('variant, program', PROGRAMS)
def test_program(outcome, variant, program):
    """The whole program's exit status, and the announced number of lines in its log."""
    result = outcome(variant, program)
    plan = re.search(r'^1\.\.(\d+)$', result.tap, re.M)
    assert plan and int(plan.group(1)) == sum(map(len, result.rows.values())), f'TAP log:\n{result.tap}{result.err[-3000:]}'
    assert result.rc == 0, result.out + result.err[-3000:]
