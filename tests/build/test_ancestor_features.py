"""test_ancestor_features - the features that the ancestors' documents name, each with a verdict and the test that holds it.

tests/data/ancestor_features.csv has a row for each: what it is, whether it works here, is awkward or missing, by which
command or variable, and the test that shows it. None is wrong. What is awkward or missing has its reason.
"""

import ast
import csv
import re
from functools import lru_cache

import pytest

from conftest import ROOT

with open(ROOT / 'tests' / 'data' / 'ancestor_features.csv', newline='') as file:
    ROWS = list(csv.DictReader(file))
SEEDS = {'telefuser', 'cache-dit', 'torch.profiler', 'torchfx', 'dftracer'}
COMMANDS = re.findall(r'^COMMAND\("([^"]+)"', (ROOT / 'analysis/commands.def').read_text(), re.M)
VARIABLES = (ROOT / 'include/env.def').read_text() + (ROOT / 'preload/python/shim/shim_telefuser.py').read_text()


@lru_cache
def functions_of(path):
    return {node.name for node in ast.parse((ROOT / 'tests' / path).read_text()).body if isinstance(node, ast.FunctionDef)}


def test_the_list_is_whole():
    """Every document has its features, each once; none is wrong."""
    assert {row['seed'] for row in ROWS} == SEEDS and len(ROWS) >= 205
    assert len({(row['seed'], row['feature']) for row in ROWS}) == len(ROWS)
    assert {row['verdict'] for row in ROWS} <= {'works', 'awkward', 'missing'}


@pytest.mark.parametrize('verdict', ['works', 'awkward', 'missing'])
def test_rows(verdict):
    """What works or is awkward has a test that exists; what does not work as it did there has its reason."""
    for row in (row for row in ROWS if row['verdict'] == verdict):
        assert bool(row['test']) == bool(row['ours']) == (verdict != 'missing'), row
        assert bool(row['reason']) == (verdict != 'works'), row
        path, _, name = row['test'].partition('::')
        assert not path or (name.startswith('test_') and name in functions_of(path)), row


def test_what_stands_there_for_ours_exists():
    """Commands are in commands.def, variables are known, options are those of the analyser or of tfrun."""
    options = set(re.findall(r'"(--[a-z-]+)', (ROOT / 'analysis/options.def').read_text())) | {'--target', '--list-stages', '--name', '--output'}
    for row in ROWS:
        for command in re.findall(r'tfanalyze ([a-z-]+(?: (?:chrome|pftrace|pfw|et|tensorboard|plan|report)\b)?)', row['ours']):
            assert command in COMMANDS or command.split()[0] in COMMANDS, row
        assert all(name in VARIABLES for name in re.findall(r'\b(?:TFI|TELEFUSER)_[A-Z_]+', row['ours'])), row
        assert set(re.findall(r'--[a-z][a-z-]+', row['ours'])) <= options, row
