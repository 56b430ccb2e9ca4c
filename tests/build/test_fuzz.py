"""test_fuzz - the readers under libFuzzer with ASan and UBSan: PyTorch traces, .tfr traces and .live files.

`make test` gives each reader some ten thousand inputs, `make soak` a million PyTorch traces and 400,000 .tfr traces. The
seeds are fixed, so a failure is repeatable. The corpus of PyTorch traces is committed; libFuzzer adds to a copy of it.
tests/fuzz_corpus.py makes the corpus of .tfr traces.
"""

import re
import resource
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fuzz_corpus
import tfr
from conftest import BUILD, ROOT, built, clean_environment, execute

pytestmark = pytest.mark.sanitized
CORPUS = ROOT / 'tests' / 'fuzz' / 'corpus'
MEMORY = Path('/dev/shm') if Path('/dev/shm').is_dir() else None  # for files that are written and read a million times


def fuzz(target, directory, corpus, runs, timeout, *options, seed=1, **env):
    """Runs a target. `corpus` is a directory that the target may add to, or a list of files to run once each."""
    found = directory / f'found{seed}'
    found.mkdir()
    with tempfile.TemporaryDirectory(dir=MEMORY) as files:
        command = [built(BUILD / 'fuzz' / target), *([] if isinstance(corpus, list) else [f'-runs={runs}']), f'-seed={seed}',
                   '-timeout=10', '-rss_limit_mb=2048', f'-artifact_prefix={found}/', *options,
                   *(corpus if isinstance(corpus, list) else [corpus])]
        result = execute(command, {**clean_environment(), 'TMPDIR': files, **env}, directory, timeout)
    left = [(p.name, p.read_bytes()[:2000]) for p in found.iterdir()]
    assert result.rc == 0 and not left, f'{left}\n{result.err[-5000:]}'
    done = re.search(r'^Done (\d+) runs', result.err, re.M)
    assert isinstance(corpus, list) or (done and int(done.group(1)) >= runs), result.err[-2000:]
    return result


def fuzz_kineto(tmp_path, runs, timeout):
    shutil.copytree(CORPUS, tmp_path / 'corpus')
    fuzz('kineto', tmp_path, tmp_path / 'corpus', runs, timeout, '-max_len=4096')


def fuzz_tfr(tmp_path, runs, timeout, seed=1):
    (tmp_path / f'corpus{seed}').mkdir()
    fuzz_corpus.write(tmp_path / f'corpus{seed}')
    fuzz('tfr', tmp_path, tmp_path / f'corpus{seed}', runs, timeout, '-max_len=16384', '-entropic=0', '-close_fd_mask=3', seed=seed)


def test_corpus_is_small():
    """The committed corpus stays small, each file and all together."""
    sizes = [p.stat().st_size for p in CORPUS.iterdir()]
    assert len(sizes) >= 10 and max(sizes) <= 8192 and sum(sizes) <= 200000, sorted(sizes)[-5:]


def test_fuzz(tmp_path):
    fuzz_kineto(tmp_path, 20000, 200)


def test_fuzz_tfr(tmp_path):
    """Damage under valid checksums reaches the .tfr decoders and every command."""
    fuzz_tfr(tmp_path, 10000, 400)


def test_seeds_and_earlier_faults(tmp_path):
    """Every seed, and every trace that once showed a fault, goes through all commands."""
    fuzz_corpus.write(tmp_path)
    result = fuzz('tfr', tmp_path, sorted(p for p in tmp_path.iterdir() if p.is_file()), 0, 200, FUZZ_ALL='1')
    assert result.err.count('Executed ') >= 40


def test_seeds_are_traces(tmp_path, tfanalyze):
    """The seeds reach the decoders: tfanalyze reads each, and `--split` turns an input into files again."""
    for name, data in fuzz_corpus.seeds().items():
        for part, end in zip(fuzz_corpus.split(data), ('.tfr', '.tfr.live')):
            if part:
                (tmp_path / f'{name}{end}').write_bytes(part)
        found = sorted(tmp_path.glob(f'{name}.tfr*'))[0]
        result = execute([tfanalyze, 'info', found])
        assert result.rc in (0, 3) and 'nothing' not in result.err.split('\n')[0], (name, result.err)


def test_a_header_of_many_keys(tmp_path, tfanalyze):
    """A header with 600,000 keys takes under 2 s (8 s when each key was compared with 4,096 others)."""
    w = tfr.Writer()
    w.block(tfr.HEADER, b''.join(b'%x\0\0' % i for i in range(600000)), flags=tfr.DEFLATED)
    w.footer()
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    result = execute([tfanalyze, 'info', w.save(tmp_path / 'rank0.h.1.tfr')])
    assert result.rc == 0, result.err
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 2


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_fuzz_a_million(tmp_path):
    fuzz_kineto(tmp_path, 1000000, 7000)


@pytest.mark.soak
@pytest.mark.timeout(14400)
def test_fuzz_many_tfr_traces(tmp_path):
    """Four processes repeat test_fuzz_tfr, each with its own seed."""
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(fuzz_tfr, tmp_path, 100000, 14000, seed) for seed in range(11, 15)]:
            done.result()
