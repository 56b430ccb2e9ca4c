"""test_demo - `make demo` as a newcomer runs it: both programs, their stages, the timeline, twice in a row."""

import gzip
import json
import re
from collections import Counter

import pytest

from conftest import BUILD, ROOT, built, clean_environment, execute

PYTHON_STAGES = {'load': 1, 'text_encode': 1, 'denoise': 1, 'step': 4, 'exchange': 4, 'vae_decode': 1}
CPP_STAGES = {'setup': 1, 'upload': 1, 'render': 1, 'tile': 9, 'finish': 1, 'sharpen': 1}


def calls_by_rank(analyze, directory):
    found = {}
    for row in analyze('stages', directory)['rows']:
        found.setdefault(row['rank'], {})[row['stage']] = row['calls']
    return found


def check_chrome_trace(path):
    with gzip.open(path, 'rt', encoding='utf-8') as f:
        events = json.load(f)
    events = events['traceEvents'] if isinstance(events, dict) else events
    names = Counter(e.get('name') for e in events if e.get('ph') in ('X', 'B'))
    for stage, calls in PYTHON_STAGES.items():
        assert names[stage] == 2 * calls, stage


@pytest.mark.timeout(400)
def test_demo_twice(lib, tfanalyze, analyze, tmp_path):
    built(BUILD / 'demo' / 'pipeline')
    out = tmp_path / 'demo run'
    for _ in range(2):
        result = execute([ROOT / 'scripts/demo/run', out], clean_environment(), '/', timeout=180)
        assert result.rc == 0, result.err[-3000:] + result.out[-3000:]
    for said in ('rank 0 of 2', 'rank 1 of 2', 'sum of all pixels', '$ build/tfanalyze stages', '$ build/tfanalyze info'):
        assert said in result.out
    place = re.search(r'^The Chrome trace of the PyTorch run is (.+)$', result.out, re.M).group(1)
    assert 'ui.perfetto.dev' in result.out
    check_chrome_trace(place)
    assert calls_by_rank(analyze, out / 'python') == {0: PYTHON_STAGES, 1: PYTHON_STAGES}
    assert calls_by_rank(analyze, out / 'cpp') == {0: CPP_STAGES}
    for run, traces in (('python', 2), ('cpp', 1)):
        assert len(list((out / run).glob('*.tfr'))) == traces


def test_script_knows_no_profiler():
    """The pipeline is one as people have it: nothing of ours in it."""
    assert 'tfi' not in (ROOT / 'scripts/demo/pipeline.py').read_text().lower()
