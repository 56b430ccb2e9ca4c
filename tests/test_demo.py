"""test_demo - `make demo` as a newcomer runs it: both programs, their stages, the timeline, twice in a row."""

import gzip
import json
import os
import re

import pytest

from conftest import BUILD, ROOT, built, clean_environment, execute

OUT = BUILD / 'demo-run'
PYTHON_STAGES = {'load': 1, 'text_encode': 1, 'denoise': 1, 'step': 4, 'exchange': 4, 'vae_decode': 1}
CPP_STAGES = {'setup': 1, 'upload': 1, 'render': 1, 'tile': 9, 'finish': 1, 'sharpen': 1}


@pytest.fixture(scope='module')
def demo(lib, tfanalyze):
    """What the second of two runs said; the directory is left for the tests, and for who wants to look."""
    built(BUILD / 'demo' / 'pipeline')
    for _ in range(2):
        result = execute([ROOT / 'scripts/demo/run'], clean_environment(), '/', timeout=200)
        assert result.rc == 0, result.err[-3000:] + result.out[-3000:]
    return result


def calls_by_rank(analyze, directory):
    found = {}
    for row in analyze('stages', directory)['rows']:
        found.setdefault(row['rank'], {})[row['stage']] = row['calls']
    return found


@pytest.mark.timeout(450)
def test_says_what_it_does(demo):
    for number in (0, 1):
        assert f'rank {number} of 2' in demo.out
    assert 'sum of all pixels' in demo.out
    assert '$ build/tfanalyze stages build/demo-run/python' in demo.out
    place = re.search(r'^The Chrome trace of the PyTorch run is (\S+)$', demo.out, re.M).group(1)
    assert os.path.exists(ROOT / place) and 'ui.perfetto.dev' in demo.out


@pytest.mark.timeout(450)
def test_stages(demo, analyze):
    assert calls_by_rank(analyze, OUT / 'python') == {0: PYTHON_STAGES, 1: PYTHON_STAGES}
    assert calls_by_rank(analyze, OUT / 'cpp') == {0: CPP_STAGES}
    for run, traces in (('python', 2), ('cpp', 1)):
        assert len(list((OUT / run).glob('*.tfr'))) == traces


@pytest.mark.timeout(450)
def test_chrome_trace(demo):
    with gzip.open(OUT / 'python.trace.json.gz', 'rt', encoding='utf-8') as f:
        events = json.load(f)
    events = events['traceEvents'] if isinstance(events, dict) else events
    names = [e.get('name') for e in events if e.get('ph') in ('X', 'B')]
    for stage, calls in PYTHON_STAGES.items():
        assert names.count(stage) == 2 * calls


def test_scripts_know_no_profiler():
    """The pipeline is one as people have it: nothing of ours in it."""
    assert 'tfi' not in (ROOT / 'scripts/demo/pipeline.py').read_text().lower()
