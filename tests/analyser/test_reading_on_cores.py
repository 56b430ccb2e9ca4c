"""test_reading_on_cores - the answers are the same on one core and on several, with igzip and with zlib alone.

With several cores other threads scan the events ahead of the reader, from places that they guess. So the traces here have
texts that look like the begin of an event, escapes, and damage. A library that only has igzip's name must not be used.
"""

import gzip
import json
import random
import subprocess

import pytest

from conftest import clean_environment, execute

pytestmark = pytest.mark.slow

EVENTS = 9000  # 2 MB: a thread scans a quarter of a megabyte at a time

STANDINS = {
    'nothing in it': 'int nothing;',
    'another layout': '''
        #include <stdlib.h>
        #include <string.h>
        void isal_inflate_init(char *s) { memset(s, 0, 48); memset(s + 20000, 0, 56); }
        int isal_inflate(void *s) { abort(); }''',
    'wrong bytes': '''
        #include <string.h>
        void isal_inflate_init(char *s) { memset(s, 0, 40); memset(s + 21160, 0, 56); }
        int isal_inflate(void *s) { return 0; }''',
}


def event(draw, i):
    """One event; some have lists of objects that look like events, and escapes in every text."""
    name = draw.choice(['aten::mm', 'caf\\u00e9 \\"x\\"', 'a\\/b},{\\"ph\\":', 'gemm<float, {1}>'])
    nested = draw.choice(['', ',"list":[{"a":1},{"ph":"X","name":"not an event","ts":5},\n {"name":"nor this"}]',
                          ',"Input Dims":[[1,2],[],[3]],"text":"},\\n{\\"ph\\": \\"X\\""'])
    space = draw.choice(['', ' ', '\n  '])
    return (f'{{{space}"ph":{space}"X","cat":"cpu_op","name":"{name}","pid":1,"tid":{i % 3},"ts":{1000 + 2 * i},'
            f'"dur":{1 + i % 2},"args":{{"External id":{i}{nested}}}{space}}}')


def text_of(seed, between=',\n'):
    draw = random.Random(seed)
    return ('{"schemaVersion":1,"traceEvents":[\n' + between.join(event(draw, i) for i in range(EVENTS)) +
            '\n],"distributedInfo":{"rank":3}}').encode()


@pytest.fixture(scope='module')
def without_igzip(tmp_path_factory):
    """A directory with a library that has the name of igzip's and nothing in it."""
    return standin(tmp_path_factory.mktemp('none'), STANDINS['nothing in it'])


def standin(directory, code):
    """Makes a library of this code that has the name of igzip's."""
    source = directory / 'standin.c'
    source.write_text(code)
    subprocess.run(['gcc', '-shared', '-fPIC', '-Wl,-soname,libisal.so.2', '-o', directory / 'libisal.so.2', source], check=True)
    return directory


def answers(tfanalyze, path, libraries=None, jobs=1, commands=('info', 'dump')):
    env = clean_environment()
    if libraries:
        env['LD_LIBRARY_PATH'] = str(libraries)
    found = []
    for command in commands:
        result = execute([tfanalyze, command, '-j', str(jobs), '--format', 'json', path], env)
        assert result.rc in (0, 1, 3), result.err
        found.append((result.rc, result.out, result.err))
    return found


def test_the_events_are_those_of_the_file(tfanalyze, tmp_path):
    text = text_of(1)
    path = tmp_path / 'a.json.gz'
    path.write_bytes(gzip.compress(text, 1))
    rows = json.loads(answers(tfanalyze, path, jobs=4, commands=('dump',))[0][1])['rows']
    expected = json.loads(text)['traceEvents']
    assert [(r['values']['name'], r['values']['args']['External id']) for r in rows] == \
        [(e['name'], e['args']['External id']) for e in expected]


@pytest.mark.parametrize('packing', ['plain', 'gzip', 'members', 'bare list'])
def test_cores_and_libraries_make_no_difference(tfanalyze, tmp_path, without_igzip, packing):
    text = text_of(2, between=',' if packing == 'plain' else ' ,\n ')
    half = len(text) // 2
    if packing == 'bare list':
        text = text[text.index(b'['):text.rindex(b']') + 1]
    path = tmp_path / ('a.json' if packing == 'plain' else 'a.json.gz')
    path.write_bytes({'plain': text, 'members': gzip.compress(text[:half]) + gzip.compress(text[half:], 1)}.get(
        packing, gzip.compress(text)))
    alone = answers(tfanalyze, path, without_igzip)
    assert alone[0][0] == 0 and f'"events": {EVENTS}' in alone[0][1]
    for libraries, jobs in ((None, 1), (None, 3), (without_igzip, 6)):
        assert answers(tfanalyze, path, libraries, jobs) == alone


def damage(kind, text, draw):
    """The bytes of a file, damaged before or after it is packed."""
    if kind == 'texts':
        changed = bytearray(text)
        for _ in range(draw.randrange(1, 12)):
            changed[draw.randrange(len(text))] = draw.choice(b'{}[]",:\\ 1e\0')
        return gzip.compress(bytes(changed), 1)
    if kind == 'cut text':
        return gzip.compress(text[:draw.randrange(len(text))], 1)
    packed = bytearray(gzip.compress(text, 6))
    if kind == 'cut':
        return bytes(packed[:draw.randrange(20, len(packed))])
    packed[draw.randrange(20, len(packed)) if kind == 'bits' else -draw.randrange(1, 9)] ^= 1 << draw.randrange(8)
    return bytes(packed)


@pytest.mark.parametrize('kind', ['texts', 'cut text', 'cut', 'bits', 'checksum'])
def test_damage_is_answered_alike(tfanalyze, tmp_path, without_igzip, kind):
    draw = random.Random(kind)
    path = tmp_path / 'a.json.gz'
    for number in range(3):
        path.write_bytes(damage(kind, text_of(number)[:900000 + 300000 * number], draw))
        alone = answers(tfanalyze, path, without_igzip)
        assert alone[0][0] == 3 and alone[0][2]
        for libraries, jobs in ((None, 1), (None, 4)):
            assert answers(tfanalyze, path, libraries, jobs) == alone


@pytest.mark.parametrize('kind', STANDINS)
def test_a_library_with_igzips_name_alone_is_not_used(tfanalyze, tmp_path, kind):
    path = tmp_path / 'a.json.gz'
    path.write_bytes(gzip.compress(text_of(3)))
    assert answers(tfanalyze, path, standin(tmp_path, STANDINS[kind])) == answers(tfanalyze, path)


def test_a_trace_cannot_name_a_library(tfanalyze, tmp_path):
    """The library is looked for where the system has libraries, not in the directory of the trace."""
    standin(tmp_path, STANDINS['another layout'])
    path = tmp_path / 'a.json.gz'
    path.write_bytes(gzip.compress(text_of(4)[:300000]))
    result = execute([tfanalyze, 'info', path], {**clean_environment(), 'LD_DEBUG': 'files'}, cwd=tmp_path)
    assert str(tmp_path / 'libisal') not in result.err and 'libisal.so.2' in result.err
