"""test_samples_churn - sampled stacks of a program that makes and ends threads, greenlets, interpreters and code objects all the time.

The program, tests/functions/churn.py, says in each line what it calls there, so each stack can be judged. At most one look in
10,000 may have found a stack that the program never has, and a few more are let through, because the test is short.
"""

import ast
import collections
import re

import pytest

import pythons
import tfr
from conftest import ROOT

pytestmark = pytest.mark.slow
PROGRAM = ROOT / 'tests/functions/churn.py'
ROOTS = '<module>', '_bootstrap', '_shutdown', 'shutdown'
INNER_CUT, OUTER_CUT = 1, 2


class Program:
    """What each line of the program calls, by its own marks, and where each function lies."""

    def __init__(self, text):
        self.calls = {number: line.split('#> ')[1].split() for number, line in enumerate(text.split('\n'), 1) if '#> ' in line}
        self.places = collections.defaultdict(list)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.places[node.name].append((node.lineno, node.end_lineno))
            elif isinstance(node, (ast.Lambda, ast.GeneratorExp)):
                self.places['<lambda>' if isinstance(node, ast.Lambda) else '<genexpr>'].append((node.lineno, node.end_lineno))

    def has(self, name, line):
        return name not in self.places or any(least <= line <= most for least, most in self.places[name])


def read_program():
    text = PROGRAM.read_text()
    inner = text.split("INNER = '''")[1].split("'''")[0]
    return {str(PROGRAM): Program(text), '<string>': Program(inner)}


def wrong_code(name, file, line):
    """A function of the code objects that come and go has its number in its name and file, and begins in that line."""
    number = re.fullmatch(r'churn_(\d+)\.py', file).group(1)
    least = 1 if name == '<module>' else int(number) + 1  # a module begins in the first line of its file
    if name not in (f'churn_{number}', '<module>') or not least <= line <= int(number) + 4:
        return f'{name} of {file} has no line {line}'
    return None


def impossible(frames, programs, cut):
    """What no moment of the program has, the innermost frame first; None if there is nothing."""
    frames = [(name.split('.')[-1], file, int(line)) for name, file, line in frames]
    for callee, (name, file, line) in zip([None] + frames, frames):
        if re.search(r'churn_\d+\.py', file):
            wrong = wrong_code(name, file, line) if line > 0 else None
            if wrong:
                return wrong
        program = programs.get(file)
        if not program or line < 1 or name not in program.places:  # some instructions have no line
            continue
        if not program.has(name, line):
            return f'{name} has no line {line}'
        wanted = program.calls.get(line, [])
        ours = callee and (callee[1] == file or callee[1].startswith('churn_'))
        if ours and re.sub(r'(?<=churn_)\d+$', '', callee[0]) not in wanted:
            return f'line {line} of {name} does not call {callee[0]}'
    outermost, file, line = frames[-1]
    if file in programs and outermost not in ROOTS and not (outermost == 'green' or cut & OUTER_CUT):
        return f'{outermost} has a caller'
    return None


def judge(trace):
    """(looks at stacks, of these cut ones, [(looks, why, frames)] of the impossible ones)."""
    programs, total, cut, wrong, known = read_program(), 0, 0, [], {}
    for record in trace.records:
        if record.kind != 'sample' or not record.values['stack']:
            continue
        sample = record.values
        key = sample['stack'], sample['flags'] & (INNER_CUT | OUTER_CUT)
        if key not in known:
            frames = tfr.stack_of(trace.strings, sample['stack'])
            known[key] = impossible(frames, programs, key[1]), frames
        total += sample['looks']
        cut += sample['looks'] if key[1] & INNER_CUT else 0
        if known[key][0]:
            wrong.append((sample['looks'], *known[key], sample['flags']))
    return total, cut, wrong


@pytest.mark.parametrize('seconds', [6, pytest.param(300, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
@pythons.by_version()
def test_stacks_while_all_comes_and_goes(python, run, seconds):
    """300 seconds are some 10^6 looks. Greenlets are part of it where the interpreter has the package."""
    done = run([python.path, PROGRAM, str(seconds)], env={'TFI_SAMPLE_HZ': 1000, 'TFI_HANG_S': 0}, timeout=3 * seconds + 120)
    assert done.rc == 0 and not done.err, done.err
    path, = done.dir.glob('*.tfr')
    total, cut, wrong = judge(tfr.read(path))
    assert total > 500 * seconds / 6 and cut < total / 10
    assert sum(looks for looks, *_ in wrong) <= 3 + total / 10000, wrong
