"""test_fuzz - the reader of PyTorch traces under libFuzzer with ASan and UBSan, from the corpus of the repository.

`make test` gives it 20,000 inputs, `make soak` a million; the seed is fixed, so that a failure comes back. What libFuzzer
adds to a corpus goes into a copy: new inputs are committed by hand.
"""

import re
import shutil

import pytest

from conftest import BUILD, ROOT, built, clean_environment, execute

CORPUS = ROOT / 'tests' / 'fuzz' / 'corpus'


def fuzz(tmp_path, runs, timeout):
    shutil.copytree(CORPUS, tmp_path / 'corpus')
    (tmp_path / 'found').mkdir()
    command = [built(BUILD / 'fuzz' / 'kineto'), f'-runs={runs}', '-seed=1', '-max_len=4096', '-timeout=10',
               f'-artifact_prefix={tmp_path}/found/', tmp_path / 'corpus']
    result = execute(command, clean_environment(), tmp_path, timeout)
    found = [(p.name, p.read_bytes()[:2000]) for p in (tmp_path / 'found').iterdir()]
    assert result.rc == 0 and not found, f'{found}\n{result.err[-5000:]}'
    done = re.search(r'^Done (\d+) runs', result.err, re.M)
    assert done and int(done.group(1)) >= runs, result.err[-2000:]


def test_corpus_is_small():
    """A corpus that is committed stays small: each file, and all of them."""
    sizes = [p.stat().st_size for p in CORPUS.iterdir()]
    assert len(sizes) >= 10 and max(sizes) <= 8192 and sum(sizes) <= 200000, sorted(sizes)[-5:]


def test_fuzz(tmp_path):
    fuzz(tmp_path, 20000, 200)


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_fuzz_a_million(tmp_path):
    fuzz(tmp_path, 1000000, 7000)
