"""test_writing_on_cores - compressed files have the bytes of the plain ones, on one core and on several.

ISA-L's libisal compresses them where it is installed, else zlib; each test of the bytes runs with both. gzip, Python's
gzip (zlib) and our own readers, igzip and zlib alone, take them. A library that only has libisal's name must not be
used. A disk that fills up while threads compress leaves nothing behind.
"""

import gzip
import json
import random
import re
import resource
import subprocess

import pytest

from conftest import clean_environment, execute
from test_reading_on_cores import EVENTS, standin, text_of

pytestmark = pytest.mark.slow

EXPORTS = {'chrome': ('export', 'chrome'), 'pftrace': ('export', 'pftrace'), 'pfw': ('export', 'pfw'), 'merge': ('merge',)}
JOBS = (1, 2, 7)

# The layout of libisal's state, as its igzip_lib.h has it, so that only what follows is wrong.
GOOD_LAYOUT = '''
    #include <string.h>
    void isal_deflate_init(char *s) {
        static char tables;
        memset(s + 12, 0, 4), memset(s + 28, 0, 4), memset(s + 40, 0, 36), memset(s + 84, 0, 16);
        *(void **)(s + 32) = &tables;
        memset(s + 128, 0, 10), memset(s + 140, 0, 4), memset(s + 160, 0, 16);
    }
    void isal_deflate_reset(char *s) { isal_deflate_init(s); }
    int isal_deflate_set_dict(char *s, char *bytes, unsigned length) { return 0; }'''
STANDINS = {
    'nothing in it': 'int nothing;',
    'a longer state': GOOD_LAYOUT.replace('memset(s + 160, 0, 16)', 'memset(s + 168, 0, 16)') + '''
        #include <stdlib.h>
        int isal_deflate(char *s) { abort(); }''',
    'no such function': GOOD_LAYOUT,
    'no bytes': GOOD_LAYOUT + 'int isal_deflate(char *s) { return 0; }',
    'an error': GOOD_LAYOUT + 'int isal_deflate(char *s) { return -5; }',
    'wrong bytes': GOOD_LAYOUT + '''
        int isal_deflate(char *s) {
            *(char **)s += *(unsigned *)(s + 8), *(unsigned *)(s + 8) = 0;
            memset(*(char **)(s + 16), 7, 5), *(char **)(s + 16) += 5, *(unsigned *)(s + 24) -= 5;
            *(int *)(s + 84) = *(short *)(s + 56) ? 11 : 0;
            return 0;
        }''',
}


def library_of(directory, kind):
    """The environment of a program that finds this library in place of libisal."""
    directory.mkdir()
    return {**clean_environment(), 'LD_LIBRARY_PATH': str(standin(directory, STANDINS[kind]))}


@pytest.fixture(params=['libisal', 'zlib'])
def library(request, tmp_path):
    return clean_environment() if request.param == 'libisal' else library_of(tmp_path / 'library', 'nothing in it')


@pytest.fixture
def traces(tmp_path):
    """Two ranks: each makes an export of a few megabytes, many of the blocks that the threads compress."""
    paths = []
    for rank in range(2):
        paths.append(tmp_path / f'rank{rank}.json')
        paths[-1].write_bytes(text_of(rank).replace(b'{"rank":3}', b'{"rank":%d,"world_size":2}' % rank))
    return paths


def write(tfanalyze, path, jobs, command, inputs, env=None):
    result = execute([tfanalyze, *command, '-j', str(jobs), '--output', path, *inputs], env)
    assert result.rc == 0, result.err
    return path.read_bytes()


@pytest.mark.parametrize('what', EXPORTS)
def test_exports(tfanalyze, tmp_path, traces, what, library):
    inputs = traces if what in ('merge', 'pftrace') else traces[:1]
    plain = write(tfanalyze, tmp_path / 'plain', 1, EXPORTS[what], inputs)
    assert len(plain) > 1 << 19
    packed = {write(tfanalyze, tmp_path / f'{jobs}.gz', jobs, EXPORTS[what], inputs, library) for jobs in JOBS}
    assert len(packed) == 1
    assert gzip.decompress(packed.pop()) == plain
    assert subprocess.run(['gzip', '-t', tmp_path / '7.gz'], check=True, capture_output=True).stderr == b''
    assert subprocess.run(['gzip', '-dc', tmp_path / '7.gz'], check=True, capture_output=True).stdout == plain


def test_our_readers_take_them(tfanalyze, tmp_path, traces, library):
    path = tmp_path / 'out.json.gz'
    write(tfanalyze, path, 3, EXPORTS['chrome'], traces[:1], library)
    for env in (clean_environment(), library_of(tmp_path / 'reader', 'nothing in it')):
        result = execute([tfanalyze, 'info', '--format', 'json', path], env)
        answer = json.loads(result.out)
        assert result.rc == 0 and answer['inputs'][0]['complete'] is True
        assert answer['inputs'][0]['events'] == EVENTS


@pytest.mark.parametrize('kind', STANDINS)
def test_a_library_with_libisals_name_alone_is_not_used(tfanalyze, tmp_path, traces, kind):
    zlib = library_of(tmp_path / 'zlib', 'nothing in it')
    expected = write(tfanalyze, tmp_path / 'zlib.gz', 2, EXPORTS['chrome'], traces[:1], zlib)
    env = library_of(tmp_path / 'standin', kind)
    assert write(tfanalyze, tmp_path / 'out.gz', 2, EXPORTS['chrome'], traces[:1], env) == expected


def test_libisal_is_used_and_makes_files_about_as_small(tfanalyze, tmp_path, traces):
    """The zlib of Python has the level of our zlib, so other bytes are libisal's."""
    if not any('libisal.so.2' in line for line in execute(['ldconfig', '-p']).out.splitlines()):
        pytest.skip('libisal is not installed')
    zlib = write(tfanalyze, tmp_path / 'zlib.gz', 2, EXPORTS['chrome'], traces[:1],
                 library_of(tmp_path / 'zlib', 'nothing in it'))
    isal = write(tfanalyze, tmp_path / 'isal.gz', 2, EXPORTS['chrome'], traces[:1])
    assert isal != zlib and len(isal) < 1.15 * len(zlib)


def odd_text(draw):
    """Bytes of a JSON string, valid or not: what may stand there at any place among plain letters."""
    odd = [b'\\n', b'\\u00e9', 'é'.encode(), '\u202e'.encode(), b'\x7f', b'\x01', b'\t', b'\xff', b'\xc2\x85',
           b'\\ud83d\\ude00', b'\\ud800', b'\\udbff', b'\\udfff', b'\\u0000', b'\\x', '\u2066'.encode(), '😀'.encode(), b'\\"', b'\n', b'\r']
    pieces = [b'a' * draw.randrange(40)]
    for _ in range(draw.choice([0, 0, 0, 1, 1, 2])):
        pieces += [draw.choice(odd), b'b' * draw.randrange(40)]
    return b''.join(pieces)


def is_strict(line):
    """Tells whether a strict reader takes the event, and a terminal stays as it is."""
    def refuse(_):
        raise ValueError
    try:
        text = line.decode()
        value = json.loads(text, parse_constant=refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:
        return False
    unsafe = [*range(0x20), *range(0x7f, 0xa0), 0x61c, 0x200e, 0x200f, *range(0x2028, 0x202f), *range(0x2066, 0x206a)]
    return not any(chr(code) in text for code in unsafe) and not re.search(r'(?<!\\)(?:\\\\)*\\u0000', text)


@pytest.mark.parametrize('seed', range(3))
def test_events_are_valid_json_on_any_number_of_cores(tfanalyze, tmp_path, seed):
    """Events that are valid keep their bytes; the others become valid. Other threads check the events, or none does."""
    draw = random.Random(seed)
    numbers = [b'1', b'-0.5e+3', b'NaN', b'Infinity', b'01', b'1.', b'.5', b'"7"', b'true', b'[1,{"x":[]}]', b'[1,]', b'{}']
    lines = [b'{"ph":"X","cat":"cpu_op","name":"n","pid":1,"tid":%d,"ts":%d,"dur":1,"args":{"text":"%s","value":%s}}' % (
        i % 3, 1000 + 2 * i, odd_text(draw), draw.choice(numbers[:2] * 4 + numbers)) for i in range(12000)]
    trace = tmp_path / 'in.json'
    trace.write_bytes(b'{"schemaVersion":1,"traceEvents":[\n' + b',\n'.join(lines) + b'\n]}')
    written = []
    for jobs in JOBS:
        result = execute([tfanalyze, 'export', 'chrome', '-j', str(jobs), '--output', tmp_path / f'{jobs}.json', trace])
        assert result.rc in (0, 3), result.err
        written.append((tmp_path / f'{jobs}.json').read_bytes())
    assert written[0] == written[1] == written[2]
    assert is_strict(written[0].replace(b'\n', b''))
    valid = [line for line in lines if is_strict(line)]
    assert len(lines) / 3 < len(valid) < len(lines)
    found = set(written[0].replace(b'},\n', b'}\n').split(b'\n'))
    assert all(line in found for line in valid)


def test_a_report_is_the_same(tfanalyze, tmp_path, library):
    """Twenty stages, one in the other: their files are open at once and share the threads."""
    events = json.loads(text_of(5))['traceEvents']
    end = max(e['ts'] for e in events) + 100
    stages = [{'ph': 'X', 'cat': 'user_annotation', 'name': f's{i}', 'pid': 1, 'tid': 0, 'ts': 900 + i,
               'dur': end - 900 - 2 * i, 'args': {}} for i in range(20)]
    trace = tmp_path / 'in.json'
    trace.write_text(json.dumps({'schemaVersion': 1, 'traceEvents': stages + events}))
    found = []
    for jobs in JOBS:
        directory = tmp_path / f'out{jobs}'
        result = execute([tfanalyze, 'report', '-j', str(jobs), '--output', directory, trace], library)
        assert result.rc == 0, result.err
        found.append({p.name: p.read_bytes() for p in directory.iterdir() if p.name.endswith('.gz')})
    assert len(found[0]) == 20 and found[0] == found[1] == found[2]
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
