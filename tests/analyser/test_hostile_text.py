"""test_hostile_text - text of a hostile trace reaches terminals and spreadsheets only escaped.

The traces have control characters, direction marks and formula prefixes in every text: names, files, metadata and its
keys, messages, names of records and columns, the header, and the path itself. Every command and format prints them.
"""

import csv
import gzip
import io
import json
import re

import pytest

import kineto
import tfr
from conftest import ROOT, clean_environment, execute
from optrace import OpTrace
from test_device_records import ticks
from test_signature_files import CACHE_DIT, FUNCTION
from tfr import NESTED, STAGE, rec

HOSTILE = ['\x1b[2J', '\x1b]0;owned\x07', '\x9b31m', '\x85', '\x7f', '\x08', '\r', '\u202e', '\u2066', '\u200f', '\u061c', '\u2028', '\t', '\n']
MARKED = ''.join(HOSTILE)
FORMULA = '=cmd|calc!A1' + MARKED
UNSAFE = re.compile('[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]')
COMMANDS = sorted(re.findall(r'^COMMAND\("([^"]+)"', (ROOT / 'analysis' / 'commands.def').read_text(), re.M))
US = 1000


def text(what):
    return what + MARKED


def of_ours(path):
    t = OpTrace(rank=0, command=text('python'), directory=text('/d'), host=text('host'), **{'meta.' + text('key'): text('value'), 'meta.=key': FORMULA})
    name = t.w.string(FORMULA)
    for flags in (FUNCTION, CACHE_DIT):
        t.ranges += 1
        t.records.append(rec('range_end', name=name, time=ticks(900 * US), duration=ticks(800 * US), id=t.ranges, flags=NESTED | STAGE | flags, thread=1))
    t.later_on(1, rec('signature', text=t.w.string(json.dumps({'': text('m:f'), text('x'): text('v')}, ensure_ascii=False).replace('\x7f', '')),
                      time=ticks(101 * US), id=1, name=name, direction=0))
    t.op(text('aten::mm'), 110 * US, 150 * US, shapes=[[2, 2]], types=[text('float')], flops=16, frames=[(text('step'), text('m.py'), 3)])
    t.call(FORMULA, 310 * US, 10 * US, kind='ALLOC')
    t.call('cudaLaunchKernel' + MARKED, 160 * US, 10 * US)
    t.work('kernel', 120 * US, 600 * US, 10 * US, name=text('gemm'))
    t.block(126 * US, 0x1000, 4096, 4096, 0)
    t.said(text('said'), text('words'))
    t.said('=1+1', '@SUM(A1)')
    t.later_on(1, rec('message', text=t.w.string(text('message')), time=ticks(10 * US)))
    t.save(path)
    return path


def of_kineto(path):
    t = kineto.Trace()
    data = json.loads(t.stage(FORMULA, 0, 900).write(path).read_text()) if path.suffix == '.json' else None
    def event(cat, name, ts, dur, tid=7, **args):
        return {'ph': 'X', 'cat': cat, 'name': name, 'pid': 7, 'tid': tid, 'ts': ts, 'dur': dur, 'args': {**args, text('arg'): text('value')}}
    data['traceEvents'] += [
        event('cpu_op', text('aten::mm'), 10, 50, **{'External id': 5, 'Input Dims': [[2, 2]], 'Input type': [text('float')]}),
        event('cuda_runtime', 'cudaLaunchKernel', 20, 5, **{'External id': 5, 'correlation': 9}),
        event('kernel', text('gemm'), 100, 50, tid=3, **{'External id': 5, 'correlation': 9, 'device': 0, 'stream': 3}),
        event('user_annotation', text('part'), 5, 60), {'ph': 'M', 'name': 'process_name', 'pid': 7, 'args': {'name': text('python')}}]
    data[text('member')] = text('value')
    data['deviceProperties'] = [{'id': 0, 'name': text('GPU')}]
    path.write_text(json.dumps(data, ensure_ascii=False))
    return path


MAKERS = {'tfr': (of_ours, 'rank0.h.1.tfr'), 'json': (of_kineto, 'trace.json')}


@pytest.fixture(params=MAKERS)
def hostile(request, tmp_path):
    """A hostile trace in a directory with a hostile name."""
    make, name = MAKERS[request.param]
    directory = tmp_path / ('run' + MARKED.replace('\n', ''))
    directory.mkdir()
    return make(directory / name)


def check(where, output, formats=''):
    found = UNSAFE.search(output)
    assert not found, (where, formats, ascii(output[max(found.start() - 80, 0):found.end() + 40]))


def test_every_command_and_format(tfanalyze, hostile):
    """Neither stdout, stderr nor a written file holds an unsafe character of the trace."""
    shown = 0
    for command in COMMANDS:
        for form in ('text', 'csv', 'json'):
            for more in ([], ['--rules', 'hta'], ['--stage', '*'], ['--names', 'mangled']):
                needs = ['--operator', 'o'] if command == 'patterns' else []
                result = execute([tfanalyze, *command.split(), *needs, *[hostile] * (1 + (command == 'diff')), '--format', form, *more], clean_environment(), hostile.parent.parent)
                if result.rc == 2:
                    continue
                assert result.rc in (0, 1, 3), (command, result.err)
                check(command, result.out, form)
                check(command, result.err, form)
                shown += 'gemm' in result.out
                if form == 'csv' and command not in ('report', 'export tensorboard', 'export parquet'):
                    for row in csv.reader(io.StringIO(result.out)):
                        for cell in row:
                            assert not re.match(r'[=@\t\r]|[+-](?![\d.]+(e[+-]?\d+)?$)', cell), (command, cell)
    assert shown > 5
    for path in hostile.parent.rglob('*'):
        if path.is_file() and path != hostile:
            data = path.read_bytes()
            check(path.name, (gzip.decompress(data) if path.suffix == '.gz' else data).decode(errors='replace') if path.suffix not in ('.pickle', '.parquet') else '')


def test_harmless_characters_are_shown(tfanalyze, tmp_path):
    """Letters of every script, emoji joiners and combining marks are shown; hidden characters are escaped."""
    fine = 'é 漢字 🧑\u200d💻 e\u0301 עברית'
    path = kineto.Trace().stage(fine + '\u202e\x1b', 0, 9).write(tmp_path / 'in.json')
    for form in ('text', 'csv'):
        assert fine + r'\u202e\x1b' in execute([tfanalyze, 'stages', path, '--format', form]).out
    row, = json.loads(execute([tfanalyze, 'stages', path, '--format', 'json']).out)['rows']
    assert row['stage'] == fine + '\u202e\x1b'


@pytest.mark.parametrize('name, cell', [('=1', "'=1"), ('+cmd', "'+cmd"), ('-x', "'-x"), ('@a', "'@a"), ('-5', '-5'), ('+1.5e3', '+1.5e3'), ('-', "'-"),
                                        ('=a,"b"', '\'=a,"b"'), ('\t=1', r'\x09=1'), ('a=1', 'a=1'), ("'=1", "'=1"), ('-inf', "'-inf")])
def test_formulas_in_csv(tfanalyze, tmp_path, name, cell):
    path = kineto.Trace().stage(name, 0, 9).write(tmp_path / 'in.json')
    row, = csv.DictReader(io.StringIO(execute([tfanalyze, 'stages', path, '--format', 'csv']).out))
    assert row['stage'] == cell


def test_names_of_records_and_columns(tfanalyze, tmp_path):
    """Names of records and columns come from the trace's schema, so they are escaped too."""
    kinds = {k: v for k, v in tfr.KINDS.items()}
    kinds['odd\x1b[2J'] = tfr.Kind(999, 'odd\x1b[2J', [tfr.Field('col\x9bumn', 'uint64_t', 'COUNT', 'PLAIN')])
    w = tfr.Writer(kinds=kinds)
    w.chunk([tfr.Record('odd\x1b[2J', {'col\x9bumn': 5})], thread=1, tid=7)
    w.footer()
    w.save(tmp_path / 'a.tfr')
    for command in ('info', 'dump'):
        for form in ('text', 'csv', 'json'):
            result = execute([tfanalyze, command, tmp_path / 'a.tfr', '--format', form])
            check(command, result.out + result.err, form)


def test_messages_name_files_without_their_controls(tfanalyze, tmp_path):
    for word in ('no\x1b[2Jthing', 'no\u202ething', 'no\nthing'):
        result = execute([tfanalyze, 'stages', tmp_path / word])
        assert result.rc == 1 and len(result.err.splitlines()) == 1 and r'no\x' in result.err.replace(r'\u202e', r'\x')
        check(word, result.err)
    result = execute([tfanalyze, 'stages', '--\x1b[2J'])
    assert result.rc == 2 and '\x1b' not in result.err


# ---- metadata ----

def reported_metadata(tmp_path, analyze, *said):
    t = OpTrace()
    for key, value in said:
        t.said(key, value)
    t.stage('s', 1000, 9000)
    analyze('report', '--output', tmp_path / 'out', t.save(tmp_path / 'rank2.h.1.tfr'))
    return json.loads((tmp_path / 'out' / 'timing.json').read_bytes().decode())['metadata']


def test_metadata_that_is_no_utf8_stays(tmp_path, analyze):
    """Every value is kept; bytes that are not UTF-8 become the replacement character."""
    found = reported_metadata(tmp_path, analyze, (b'caf\xe9', b'na\xefve'), ('plain', 'ü'), ('cut', b'\xe2\x82'), ('all', b'\xff\xfe'))
    assert found == {'caf\ufffd': 'na\ufffdve', 'plain': 'ü', 'cut': '\ufffd\ufffd', 'all': '\ufffd\ufffd'}


def test_metadata_of_telefuser_that_is_no_strict_json_stays(tmp_path, analyze):
    """Lone surrogates, NUL and NaN, which only Python's json accepts, become strict JSON; the rest stays."""
    value = {'path': 'a\udc80b', 'nul': 'x\0y', 'pair': '\U0001f600', 'nan': float('nan'), 'text': 'NaN "-Infinity" \\ud800',
             'least': [float('-inf'), -1.5], 'ok': None}
    found = reported_metadata(tmp_path, analyze, ('telefuser.request_id', '"r"'), ('telefuser.metadata', json.dumps(value)),
                              ('telefuser.memory', '{}'))
    assert found == {**value, 'path': 'a\ufffdb', 'nul': 'x\ufffdy', 'nan': None, 'least': [None, -1.5]}
    raw = reported_metadata(tmp_path, analyze, ('telefuser.request_id', '"r"'), ('telefuser.metadata', b'{"a": "\xe9", "b": 1}'))
    assert raw == {'a': '\ufffd', 'b': 1}
