"""test_writing_on_cores - compressed files have the bytes of the plain ones, on one core and on several.

gzip, Python's gzip (zlib) and our own readers, igzip and zlib alone, take them. A disk that fills up while threads
compress leaves nothing behind.
"""

import gzip
import json
import resource
import subprocess

import pytest

from conftest import clean_environment, execute
from test_reading_on_cores import EVENTS, standin, text_of

EXPORTS = {'chrome': ('export', 'chrome'), 'pftrace': ('export', 'pftrace'), 'pfw': ('export', 'pfw'), 'merge': ('merge',)}
JOBS = (1, 2, 7)


@pytest.fixture
def traces(tmp_path):
    """Two ranks: each makes an export of a few megabytes, many of the blocks that the threads compress."""
    paths = []
    for rank in range(2):
        paths.append(tmp_path / f'rank{rank}.json')
        paths[-1].write_bytes(text_of(rank).replace(b'{"rank":3}', b'{"rank":%d,"world_size":2}' % rank))
    return paths


def write(tfanalyze, path, jobs, command, inputs):
    result = execute([tfanalyze, *command, '-j', str(jobs), '--output', path, *inputs])
    assert result.rc == 0, result.err
    return path.read_bytes()


@pytest.mark.parametrize('what', EXPORTS)
def test_exports(tfanalyze, tmp_path, traces, what):
    inputs = traces if what in ('merge', 'pftrace') else traces[:1]
    plain = write(tfanalyze, tmp_path / 'plain', 1, EXPORTS[what], inputs)
    assert len(plain) > 1 << 19
    packed = {write(tfanalyze, tmp_path / f'{jobs}.gz', jobs, EXPORTS[what], inputs) for jobs in JOBS}
    assert len(packed) == 1
    assert gzip.decompress(packed.pop()) == plain
    assert subprocess.run(['gzip', '-t', tmp_path / '7.gz'], check=True, capture_output=True).stderr == b''
    assert subprocess.run(['gzip', '-dc', tmp_path / '7.gz'], check=True, capture_output=True).stdout == plain


def test_our_readers_take_them(tfanalyze, tmp_path, traces):
    path = tmp_path / 'out.json.gz'
    write(tfanalyze, path, 3, EXPORTS['chrome'], traces[:1])
    for libraries in ({}, {'LD_LIBRARY_PATH': str(standin(tmp_path, 'nothing in it'))}):
        result = execute([tfanalyze, 'info', '--format', 'json', path], {**clean_environment(), **libraries})
        answer = json.loads(result.out)
        assert result.rc == 0 and answer['inputs'][0]['complete'] is True
        assert answer['inputs'][0]['events'] == EVENTS


def test_a_report_is_the_same(tfanalyze, tmp_path):
    """Forty stages, one in the other: their files are open at once and share the threads."""
    events = json.loads(text_of(5))['traceEvents']
    end = max(e['ts'] for e in events) + 100
    stages = [{'ph': 'X', 'cat': 'user_annotation', 'name': f's{i}', 'pid': 1, 'tid': 0, 'ts': 900 + i,
               'dur': end - 900 - 2 * i, 'args': {}} for i in range(40)]
    trace = tmp_path / 'in.json'
    trace.write_text(json.dumps({'schemaVersion': 1, 'traceEvents': stages + events}))
    found = []
    for jobs in JOBS:
        directory = tmp_path / f'out{jobs}'
        result = execute([tfanalyze, 'report', '-j', str(jobs), '--output', directory, trace])
        assert result.rc == 0, result.err
        found.append({p.name: p.read_bytes() for p in directory.iterdir() if p.name.endswith('.gz')})
    assert len(found[0]) == 40 and found[0] == found[1] == found[2]
    written = [json.loads(gzip.decompress(data))['traceEvents'] for data in found[0].values()]
    assert all(len(events) > EVENTS / 3 for events in written)


@pytest.mark.parametrize('jobs', JOBS)
def test_a_disk_that_fills_up(tfanalyze, tmp_path, traces, jobs):
    size = len(write(tfanalyze, tmp_path / 'whole.json.gz', 1, EXPORTS['chrome'], traces[:1]))
    directory = tmp_path / 'full'
    directory.mkdir()
    for limit in (0, 5, size // 2, size - 1):
        result = subprocess.run(
            [tfanalyze, 'export', 'chrome', '-j', str(jobs), '--output', directory / 'out.json.gz', traces[0]],
            capture_output=True, text=True, env=clean_environment(),
            preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        assert result.returncode == 1 and result.stderr.count('cannot be written (File too large)') == 1
        assert not list(directory.iterdir())
    device = tmp_path / 'device.gz'
    device.symlink_to('/dev/full')
    result = execute([tfanalyze, 'export', 'chrome', '-j', str(jobs), '--output', device, traces[0]])
    assert result.rc == 1 and 'No space left' in result.err


def test_a_reader_that_goes_away(tfanalyze, tmp_path, traces):
    """A pipe whose reader has ended stops the program by SIGPIPE or by an error, never in silence."""
    pipe = tmp_path / 'pipe.gz'
    subprocess.run(['mkfifo', pipe], check=True)
    reader = subprocess.Popen(['head', '-c', '10', pipe], stdout=subprocess.DEVNULL)
    result = execute([tfanalyze, 'export', 'chrome', '-j', '4', '--output', pipe, traces[0]])
    reader.wait()
    assert result.rc not in (0, 3)
