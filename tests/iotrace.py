"""iotrace - file records of traces, for tests: each with its function, class and paths as text."""

import re
import shutil
import subprocess
from types import SimpleNamespace

import scripted
from conftest import ROOT

ON = {'TFI_ACTIVITIES': 'io'}


def rows(table):
    """[(class, symbol)] of a table of preload/io."""
    return re.findall(r'^HOOK\w*\((\w+), [^(]*?(\w+), \(', (ROOT / f'preload/io/{table}.def').read_text(), re.M)


def records(trace, kind='io'):
    """The records of a kind, in the order of their times, with texts for functions and paths."""
    out = []
    for r in trace.records:
        if r.kind != kind:
            continue
        values = dict(r.values)
        if 'func' in values:
            values['library'], values['kind'], values['name'], _ = scripted.text(trace, values['func']).split('\x1f')
        for column in ('path', 'other'):
            if column in values:
                values[column] = scripted.text(trace, values[column]) if values[column] else None
        out.append(SimpleNamespace(**values))
    return sorted(out, key=lambda r: r.time)


def all_records(directory, kind='io'):
    return [r for trace in scripted.traces(directory) for r in records(trace, kind)]


def exported(library):
    """The functions that a library exports."""
    listed = subprocess.run(['nm', '-D', '--defined-only', library], capture_output=True, text=True, check=True).stdout
    return {m[1] for m in re.finditer(r' [TWi] (\w+)@?', listed)}


def libc():
    maps = open('/proc/self/maps').read()
    return re.search(r'\S+/libc\.so\.6', maps)[0]


def strace():
    return shutil.which('strace')
