"""test_dftracer_interface - regions of dftracer's C and C++ interface become stages; other functions of these names stay.

The program is linked with a library in dftracer's place that says each of its calls.
"""

import json
from collections import Counter

import pytest

import scripted

DFTRACER = 0x40000


def recorded(trace):
    """{(name, category, arguments as JSON): calls}, and {name: calls} of the stages without these."""
    said = {r.values['id']: json.loads(scripted.text(trace, r.values['text'])) for r in trace.records
            if r.kind == 'signature' and r.values['direction'] == 3}
    found, bare = Counter(), Counter()
    for r in trace.records:
        if r.kind == 'range_end':
            name, given = scripted.text(trace, r.values['name']), said.get(r.values['id'])
            assert r.values['flags'] & DFTRACER
            if given: found[name, given['cat'], json.dumps(given['args'])] += 1
            else: bare[name] += 1
    return found, bare, said


def facts(trace):
    return {scripted.text(trace, r.values['key']): scripted.text(trace, r.values['value']) for r in trace.records
            if r.kind == 'metadata'}


EXPECTED = {
    ('outer', 'C_APP', '{}'): 1,
    ('inner', 'C_APP', json.dumps({'number': -7, 'text': 'a "b" \ufffd', 'typed': 8, 'more': 'x'})): 1,
    ('scope', 'C_APP', '{}'): 1,
    ('elsewhere', 'C_APP', '{}'): 1,
    ('newest', 'CPP_APP', '{"n": 1, "t": "two"}'): 1,
    ('middle', 'CPP_APP', '{"n": 3}'): 1,
    ('oldest', 'CPP_APP', '{"t": "four"}'): 1,
}


def test_regions(run, victim):
    """Each region is a stage with its arguments. dftracer's library gets all of the calls, and its own calls are no stages."""
    bare = run([victim('dftracer_regions')], preload=False)
    assert bare.rc == 0 and {'initialize_main', 'initialize_region outer C_APP 0', 'mark_used', 'finalize', '_ZN8DFTracerD1Ev',
                             'update_metadata_int_type 200 typed 8 1', 'errno 77'} <= set(bare.out.split('\n'))
    result = run([victim('dftracer_regions')])
    assert (result.rc, result.out, result.err) == (0, bare.out, '')
    trace = scripted.only(scripted.traces(result.dir))
    found, without, _ = recorded(trace)
    assert found == EXPECTED and not without
    said = {k: v for k, v in facts(trace).items() if k.startswith('dftracer.')}
    assert said == {'dftracer.logfile': 'log', 'dftracer.data_dir': 'data', 'dftracer.process_id': '3', 'dftracer.nodes': '2',
                    'dftracer.model': 'small', 'dftracer.key': 'value', 'dftracer.from': 'cpp'}


def test_values_are_left_out(run, victim):
    result = run([victim('dftracer_regions')], {'TFI_RECORD_VALUES': '0'})
    trace = scripted.only(scripted.traces(result.dir))
    found, _, _ = recorded(trace)
    assert {v for _, _, args in found for v in json.loads(args).values()} == {'int', 'str'}
    assert facts(trace)['dftracer.model'] == 'str'


def test_more_than_there_is_room_for(run, victim):
    """Arguments beyond a region's room are counted in the region, regions beyond 512 open ones among the losses."""
    result = run([victim('dftracer_regions'), 'many'])
    trace = scripted.only(scripted.traces(result.dir))
    found, without, said = recorded(trace)
    assert result.out == run([victim('dftracer_regions'), 'many'], preload=False).out
    (full, count), = ((json.loads(args), n) for (name, _, args), n in found.items() if name == 'full')
    left, = (s['left_out'] for s in said.values() if 'left_out' in s)
    assert count == 1 and len(full) + left == 100 and 10 < len(full) < 100
    assert all(key == f'an argument with number {n}' for key, n in full.items())
    assert found['many', 'C_APP', '{}'] + scripted.drops(trace)['ranges'] == 600
    assert found['many', 'C_APP', '{}'] >= 500 and not without


def test_other_functions_of_these_names(run, victim):
    """A library with functions of the same names and other arguments keeps its calls, registers and stack."""
    bare, result = (run([victim('foreign')], preload=preload) for preload in (False, True))
    assert (result.rc, result.out, result.err) == (bare.rc, bare.out, '') and bare.rc == 0 and bare.out.endswith('2 calls\n')
    assert not list(result.dir.rglob('*.tfr'))


# Two copies of the library, each with a counter of its own calls. `local`: no other object sees their definitions.
# `closed`: the second one is loaded once the first one is gone.
COPIES = '''
import ctypes, shutil, sys, _ctypes
kind, first, second = sys.argv[1:]
shutil.copy(first, second)
for path in first, second:
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL if kind == "closed" else ctypes.RTLD_LOCAL)
    library.foreign_calls()
    if kind == "closed": _ctypes.dlclose(library._handle)
'''


@pytest.mark.parametrize('kind', ['local', 'closed'])
def test_each_copy_of_another_library_gets_its_own_calls(run, victim, python, tmp_path, kind):
    command = [python, '-c', COPIES, kind, victim('libforeign.so'), tmp_path / 'libcopy.so']
    bare, result = (run(command, preload=preload) for preload in (False, True))
    assert (result.rc, result.out, result.err) == (bare.rc, bare.out, '') and bare.rc == 0
    assert bare.out.count('2 calls\n') == 2
