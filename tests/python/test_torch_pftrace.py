"""test_torch_pftrace - `tfanalyze export pftrace` of real PyTorch on a CPU equals the records of its trace.

tests/tfr.py reads the trace, Perfetto's package the export.
"""

from collections import Counter

import pytest

import pftrace
import tfr

SCRIPT = '''
import torch
from torch.profiler import record_function
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
for i in range(3):
    with record_function(f'step {i % 2}'):
        model(torch.randn(5, 8)).sum().backward()
'''


@pytest.mark.slow
def test_operators_stages_and_memory(run, python, analyze, tmp_path):
    result = run([python, '-c', SCRIPT], {'TFI_PROFILE_MEMORY': '1', 'LD_LIBRARY_PATH': None})
    assert result.rc == 0, result.err
    path, = result.dir.glob('*.tfr')
    analyze('export', 'pftrace', path, '--output', tmp_path / 'out', format=None)
    found, trace = pftrace.read(tmp_path / 'out'), tfr.read(path)
    clock = tfr.Clock(trace.records)

    def ours(kind):
        return [r.values for r in trace.records if r.kind == kind]

    def near(ticks):
        return pytest.approx(float(clock(ticks)), abs=512)  # ns; a double rounds to 256

    operators = sorted((s for s in found.slices if s.category == 'cpu_op'), key=lambda s: (s.start, -s.end))
    records = sorted(ours('op'), key=lambda v: (v['time'], -v['duration']))
    assert len(records) > 30
    assert Counter(s.name for s in operators) == Counter(trace.strings[v['name']].decode() for v in records)
    for s, v in zip(operators, records):
        assert s.start == near(v['time']) and s.end == near(v['time'] + v['duration'])
    stages = Counter(s.name for s in found.slices if s.category == 'user_annotation')
    assert stages == {'step 0': 2, 'step 1': 1}
    totals = [(float(clock(v['time'])), v['allocated']) for v in ours('memory') if v['device'] < 0]
    counter = found.counters['memory allocated, CPU']
    assert len(totals) > 10 and Counter(v for _, v in counter) == Counter(v for _, v in totals)
    backward = [(a, b) for a, b in found.flows if b.args.get('Sequence number') is not None]
    assert len(backward) >= 9
    for a, b in backward:
        assert b.args['Sequence number'] == a.args['Sequence number'] and 'Backward' in b.name
