"""test_slowest - single calls of a stage: the longest comes first, and each has the file that it read longest.

Which call is the longest depends on the machine: one may be held up.
"""

import sys

SCRIPT = '''import os
def step(i):
    with open("big" if i == 3 else "small", "rb", buffering=0) as file:
        while file.read(1 << 12): pass
    for k in range(400000 if i == 3 else 2000): pass
for i in range(8): step(i)
'''


def test_slowest_call(run, analyze, tmp_path):
    (tmp_path / 'big').write_bytes(bytes(1 << 22))
    (tmp_path / 'small').write_bytes(bytes(1 << 12))
    (tmp_path / 'main.py').write_text(SCRIPT)
    result = run([sys.executable, 'main.py'], {'TFI_STAGES': '__main__:step', 'TFI_ACTIVITIES': 'cpu,io'})
    assert result.rc == 0
    rows = analyze('stages', '--slowest', 3, result.dir)['rows']
    summary, = [r for r in analyze('stages', result.dir)['rows'] if r['stage'] == 'step']
    assert len(rows) == 3 and [r['stage'] for r in rows] == ['step'] * 3
    assert rows[0]['time_us'] == summary['max_us']
    for row in rows:
        assert row['median_us'] == summary['median_us'] and row['pid'] and row['worker'] is None
        assert abs(row['time_us'] - row['median_us'] - row['excess_us']) < 0.01
    assert [r['excess_us'] for r in rows] == sorted((r['excess_us'] for r in rows), reverse=True)
    every = analyze('stages', '--slowest', 100, result.dir)
    assert every['totals']['calls'] == len(every['rows']) == 8 and every['rows'][:3] == rows
    assert sorted(r['file'].rsplit('/', 1)[1] for r in every['rows']) == ['big'] + ['small'] * 7
    assert all(0 < r['file_us'] < r['time_us'] for r in every['rows'])
    assert ['"i": 0' in r['inputs'] for r in every['rows'] if r['inputs']] == [True]  # of the first call; the others have no new shapes
