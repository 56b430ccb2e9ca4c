"""test_matrix - the recorded lines of torch's releases are what the releases give, each with PyPI's wheel, and the README shows them."""

import csv
import re
import subprocess

import pytest

import matrix
from conftest import ROOT


def recorded():
    with open(matrix.RECORDED, newline='') as f:
        return {line['torch']: line for line in csv.DictReader(f)}


def percent(cell):
    """The whole percents of a cell; None where torch.profiler counted nothing."""
    found, counted = map(int, cell.split('/'))
    return found * 100 // counted if counted else None


def test_every_release_has_a_line_and_a_layout():
    """The lines are those of the matrix, all with FOUND/COUNTED, and layout.def has a row for each release."""
    lines = recorded()
    assert list(lines) == matrix.VERSIONS
    layouts = [(int(a), int(b)) for a, b in re.findall(r'^TORCH\((\d+), (\d+),', (ROOT / 'preload/torch/layout.def').read_text(), re.M)]
    for version, line in lines.items():
        major, minor = map(int, version.split('.')[:2])
        assert any(a <= major * 1000 + minor <= b for a, b in layouts), version
        assert set(line) == set(matrix.COLUMNS) and percent(line['operators']) == 100
        assert all(percent(line[c]) is not None for c in matrix.CELLS if c != 'values')


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize('version', matrix.VERSIONS)
def test_a_release(version, lib):
    """Each share is at least the recorded one, in whole percents, and the library says nothing else."""
    if not matrix.interpreter(version):
        pytest.skip('no Python for this release of torch is here')
    try:
        line = matrix.line_of(version)
    except subprocess.CalledProcessError as error:
        if 'pip' in map(str, error.cmd):
            pytest.skip("PyPI's wheel of torch can't be had")
        raise AssertionError(error.stdout) from error
    want = recorded()[version]
    worse = [c for c in matrix.CELLS if (percent(line[c]) is None) != (percent(want[c]) is None) or (percent(line[c]) or 0) < (percent(want[c]) or 0)]
    assert not worse, (line, want)
    assert line['messages'] == want['messages']
