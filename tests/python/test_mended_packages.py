"""test_mended_packages - faults of speed in releases of public packages: `tfanalyze advise` names them before the fix, not after.

One of the first three findings names the function that was changed or the line that calls it.
"""

import subprocess
import sys

import pytest

from pipelines import planted

# package: the release with the fault, the mended one, what else it needs, the changed function, the call in packages.py
RELEASES = {
    'werkzeug': ('werkzeug==3.0.0', 'werkzeug==3.0.1', ['markupsafe'], '_parse_data', 'MultiPartParser().parse('),
    'psutil': ('psutil==5.9.8', 'psutil==6.0.0', [], 'process_iter', 'ps.process_iter()'),
    'dateutil': ('python-dateutil==2.6.1', 'python-dateutil==2.7.0', ['six'], 'gettz', "tz.gettz('Europe/Berlin')"),
    'docx': ('python-docx==1.1.0', 'python-docx==1.1.2', ['lxml', 'typing_extensions'], 'cells', 'in row.cells:'),
    'networkx': ('networkx==2.6.3', 'networkx==3.2.1', [], '_plain_bfs', 'nx.connected_components('),
    'torchmetrics': ('torchmetrics==0.6.0', 'torchmetrics==0.10.0', ['setuptools==75.0.0'], 'get_group_indexes', 'metric.compute()'),
}


def install(directory, *packages):
    try:
        subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', '--no-deps', '--disable-pip-version-check', '--target', directory, *packages],
                       check=True, capture_output=True, timeout=300)
    except subprocess.SubprocessError:
        pytest.skip(f'{packages[0]} can\'t be had')


def lines_of(tfanalyze, lib, directory, name):
    """(line of the program, the words of the finding) of the first three findings above a note."""
    result, run = planted.record(sys.executable, lib, [planted.program('packages'), name], directory,
                                 {'PYTHONPATH': str(directory / 'site-packages'), 'TFI_WITH_STACK': '1'}, 600)
    assert result.rc == 0, result.err
    _, found = planted.advice(tfanalyze, run)
    lines = planted.program('packages').read_text().splitlines()
    first = [row for row in found['rows'] if row['severity'] != 'note'][:3]
    return [(lines[row['where']['line'] - 1] if row['where']['file'] == str(planted.program('packages')) else '', row['finding']) for row in first]


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize('name', RELEASES)
def test_a_fault_of_a_release(tfanalyze, lib, tmp_path, name):
    old, new, needs, function, call = RELEASES[name]
    found = {}
    for form, release in (('old', old), ('new', new)):
        install(tmp_path / form / 'site-packages', release, *needs)
        found[form] = lines_of(tfanalyze, lib, tmp_path / form, name)
    names = {form: [call in line or f'{function}' in words.split('most of it in')[-1] for line, words in found[form]] for form in found}
    assert any(names['old']) and not any(names['new']), found
