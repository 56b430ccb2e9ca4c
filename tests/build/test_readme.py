"""test_readme - the README: short, honest at the top, and every command in it runs and prints the output shown."""

import re
import shutil
import textwrap

import pytest

from conftest import BUILD, ROOT, built, clean_environment, execute

README = (ROOT / 'README.md').read_text()
TARGETS = set(re.findall(r'^([a-z-]+):', (ROOT / 'Makefile').read_text(), re.M))


def sessions():
    """[(command, [line of its output, ...])] of all code blocks, in their order."""
    found = []
    for block in re.findall(r'(?:^ {4}.*\n)+', README, re.M):
        for line in block.splitlines():
            if line.startswith('    $ '):
                found.append((line[6:], []))
            elif found and block.startswith('    $ '):
                found[-1][1].append(line[4:])
    return found


def has_measured_values(line):
    return re.search(r'\d\.\d', line)


def shape(text):
    return re.sub(r'\d+', '#', re.sub(' +', ' ', text))


def play(directory, chosen):
    """Runs commands of the README in an empty directory that has the checkout's scripts, with the build on PATH."""
    (directory / 'scripts').symlink_to(ROOT / 'scripts')
    path = f'{BUILD}:{ROOT / "scripts"}:{BUILD / "venv/bin"}:{clean_environment()["PATH"]}'
    for command, expected in chosen:
        result = execute(['bash', '-o', 'pipefail', '-c', command], {**clean_environment(), 'PATH': path, 'OMP_NUM_THREADS': '1'}, directory)
        assert result.rc == 0, (command, result.err)
        said = shape(result.out + result.err)  # lines of two ranks may run into each other
        assert not [line for line in expected if not has_measured_values(line) and shape(line) not in said], (command, said)
        if any(map(has_measured_values, expected)):
            assert len(expected) == len(result.out.splitlines()), (command, result.out)
        yield command, expected, result.out.splitlines()


def test_length_and_promises():
    lines = README.splitlines()
    assert len(lines) <= 150
    assert any('has run on a real GPU so far' in line for line in lines[:10])
    for command in ('make test', 'make demo', 'make check-fast'):
        assert f'`{command}`' in README


def test_names_in_the_readme_exist():
    """The README's make targets, files and topics of tfanalyze help exist."""
    assert {target for target in re.findall(r'`make ([a-z-]+)', README)} <= TARGETS
    for path in re.findall(r'\b(?:scripts|tests|include|analysis|preload)/[\w./-]*\w', README):
        assert (ROOT / path).exists(), path
    topics = {p.stem for p in (ROOT / 'analysis/help').glob('*.txt')}
    named = set(re.findall(r'`tfanalyze help ([a-z-]+)`', README)) | set(re.findall(r'tfinject-([a-z]+)\(7\)', README))
    assert named and named <= topics
    listed = README.split('Good ones to begin with:')[1].split('\n\n')[0]
    assert set(re.findall('`([a-z]+)`', listed)) <= topics


@pytest.mark.slow
def test_a_first_profile(lib, tfanalyze, python, tmp_path):
    """The README's commands run in order, except those on other people's traces."""
    chosen = [s for s in sessions() if 'traces/' not in s[0]]
    seen = [command.split()[0] for command, *_ in play(tmp_path, chosen)]
    assert seen == ['tfrun', 'tfanalyze', 'tfanalyze', 'tfrun']
    assert (tmp_path / 'run/timing.json').exists()


def test_pytorch_traces(tfanalyze, tmp_path, shared_traces):
    """The README's commands on PyTorch traces run, and the first screen is the one that it shows."""
    (tmp_path / 'traces').mkdir()
    for trace in (shared_traces / 'hta/trace_filter').glob('*.json.gz'):
        shutil.copy(trace, tmp_path / 'traces')
    built(BUILD / 'tfanalyze')
    seen = [command for command, *_ in play(tmp_path, [s for s in sessions() if 'traces/' in s[0]])]
    assert len(seen) == 2
    shown = textwrap.dedent(README.split('$ tfanalyze traces/\n')[1].split('\n## ')[0])
    assert execute(['tfanalyze', 'traces/'], {**clean_environment(), 'PATH': str(BUILD)}, tmp_path).out.splitlines() == shown.rstrip().splitlines()
