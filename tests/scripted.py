"""scripted - runs tests/victims/script.c and reads its traces with tests/tfr.py, not with the reader under test."""

import struct
from types import SimpleNamespace

import tfr
from conftest import BUILD, built, without_unmatched


def play(run, program, steps, env=None, preload='test', rc=0, err='', **options):
    """Plays steps (a list, or words); the result has .traces, one for each .tfr below the test's directory.

    `err` is the expected stderr without the lines about unmatched names, which test_unmatched tests.
    """
    result = run([program, *(steps.split() if isinstance(steps, str) else steps)], env, preload=preload, **options)
    assert result.rc == rc, (result.rc, result.out, result.err)
    if err is not None:
        assert without_unmatched(result.err) == err
    result.traces = traces(result.dir)
    return result


def traces(directory):
    return [trace(path) for path in sorted(directory.rglob('*.tfr'))]


def trace(path):
    t = tfr.read(path)
    t.path = path
    assert not t.bad
    return t


def drops(t):
    """{cause: last count} of the trace's drop records."""
    names = {number: name for name, (number, _) in tfr.DROPS.items()}
    return {names[r.values['cause']]: r.values['count'] for r in t.records if r.kind == 'drop'}


def text(t, number):
    return t.strings[number].decode(errors='surrogateescape') if number else None


def calls(t):
    """The call records of a trace: library, class, name, argument names, values, result, error, time, duration."""
    out = []
    for r in t.records:
        if r.kind == 'call':
            library, kind, name, arguments = text(t, r.values['func']).split('\x1f')
            out.append(SimpleNamespace(**r.values, library=library, kind=kind, name=name, arguments=arguments))
    return out


def called(t):
    """The arguments of the calls of dummy_add, sorted: the numbers that the script gave them."""
    return sorted(c.args[0] for c in calls(t) if c.name == 'dummy_add')


def stages(t, kind='range_end'):
    return [text(t, r.values['name']) for r in t.records if r.kind == kind]


def libraries(directory, *names):
    """Makes a directory with these simulated libraries; empty files hide installed versions of the others."""
    directory.mkdir()
    for name in ('libcuda.so.1', 'libcudart.so.13', 'libcudart.so.12', 'libcupti.so.13', 'libcupti.so.12'):
        (directory / name).symlink_to(built(BUILD / 'simgpu' / name)) if name in names else (directory / name).touch()
    return directory


def only(items):
    assert len(items) == 1, [str(getattr(item, 'path', item)) for item in items]
    return items[0]


SLOT, SLOT_CALL, SLOT_STAGE = struct.Struct('<IIIIIIQQ16s'), struct.Struct('<QII'), struct.Struct('<QII')


def slots(path):
    """{tid: calls, stages} of the used slots of a .live file, outermost names first; see struct tfi_slot."""
    data = path.read_bytes()
    strings = tfr.read_live(data).strings
    offset, size = struct.unpack_from('<QQ', data, 24 + 2 * 16)
    width = struct.unpack_from('<I', data, 24 + 6 * 16)[0]
    out = {}
    for at in range(offset, offset + size, width):
        state, _, tid, nr_calls, nr_stages, _, _, _, name = SLOT.unpack_from(data, at)
        if state != 1:
            continue
        at += SLOT.size
        found = [SLOT_CALL.unpack_from(data, at + i * 16) for i in range(min(nr_calls, 4))]
        at += 4 * 16
        ranges = [SLOT_STAGE.unpack_from(data, at + i * 16) for i in range(min(nr_stages, 36))]
        out[tid] = SimpleNamespace(calls=[strings[func].decode().split('\x1f')[2] for _, func, _ in found],
                                   nr_calls=nr_calls, stages=[strings[number].decode() for _, number, _ in ranges],
                                   nr_stages=nr_stages, since=[start for start, _, _ in found], name=name.rstrip(b'\0').decode())
    return out
