"""test_execution_bad - `export et` of hostile and incomplete records: words that break off, deep lists, huge counts."""

import json
import random

import pytest
from tfr import MONOTONIC, REALTIME, Writer, rec

TENSOR, INT, STRING, LIST, KEYWORD = 1, 5, 12, 14, 255
KNOWN, SIZES, STRIDES, STORAGE = 1 << 16, 1 << 16, 2 << 16, 4 << 16


def trace(path, records, **info):
    w = Writer(rank=0, pid=7, clock='monotonic', **info)
    clocks = [r for at in (0, 10 ** 9) for r in (
        rec('clock', clock=MONOTONIC, ticks=at, value=at), rec('clock', clock=REALTIME, ticks=at, value=10 ** 18 + at))]
    w.chunk(clocks + records(w), thread=1, tid=7)
    w.footer()
    w.save(path)
    return path


def pair(w, handle, time, inputs=(), outputs=(), name='aten::f', thread=1, forward=0, end=None, **begin):
    return [rec('function_begin', name=w.string(name), time=time, handle=handle, sequence=-1, logical_thread=thread, forward=forward,
                inputs=list(inputs), **begin),
            rec('function_end', schema=0, time=end or time + 5, handle=handle, outputs=list(outputs))]


def export(analyze, path, rc):
    result = analyze('export', 'et', path, rc=rc, format=None)
    return json.loads(result.out)['nodes'] if rc in (0, 3) else result, result.err


@pytest.mark.parametrize('words, values, rc', [
    ([INT | KNOWN, 3], [3], 0),
    ([INT], [None], 0),
    ([STRING | KNOWN, 10 ** 6], [''], 0),
    ([LIST | (2 ** 32 - 1) << 32, INT | KNOWN, 1], [[1]], 3),
    ([LIST | 1 << 32] * 60 + [INT | KNOWN, 1], None, 3),
    ([TENSOR | 255 << 8 | SIZES, 1, 2], [], 0),
    ([TENSOR | 1 << 8 | SIZES | STRIDES | STORAGE | 6 << 24 | 255 << 48, 64, 128, 2, 3, 2 ** 64 - 1, 4], [[4, 5, 2, 3, 4, 'cpu']], 0),
    ([TENSOR | STORAGE | 999 << 24 | 99 << 40, 64, 128, 2, 3], [[4, 5, 2, 3, 0, 'unknown:0']], 0),
    ([200, 254], ['<Unknown>', '<Unknown>'], 0),
    ([KEYWORD | 9 << 32], [], 0)])
def test_words(analyze, tmp_path, words, values, rc):
    nodes, err = export(analyze, trace(tmp_path / 'rank0.h.7.tfr', lambda w: pair(w, 1, 100, words)), rc)
    node = nodes[1]
    assert values is None or node['inputs']['values'] == values
    assert ('lack some of their values' in err) == (rc == 3)
    assert [n['ctrl_deps'] for n in nodes] == [1, 2, 1] and len(node['inputs']['types']) == len(node['inputs']['shapes'])


def test_edges_without_a_pair_and_other_order(analyze, tmp_path):
    def records(w):
        a, a_end = pair(w, 1, 100, end=110)
        b, b_end = pair(w, 2, 101, end=120)
        _, lost = pair(w, 9, 102)
        c, c_end = pair(w, 3, 112)
        d, _ = pair(w, 4, 130)
        return [a, b, lost, a_end, c, c_end, b_end, d]
    nodes, err = export(analyze, trace(tmp_path / 'rank0.h.7.tfr', records), 3)
    parents = {n['attrs'][0]['value']: n['ctrl_deps'] for n in nodes}
    ids = {n['attrs'][0]['value']: n['id'] for n in nodes}
    assert parents[1] == 2 and parents[2] == ids[1] and parents[3] == ids[2] and 4 not in parents
    assert '1 functions have no start record' in err and '1 functions have no end' in err


def test_a_function_behind_an_inner_one_has_the_outer_one_as_parent(analyze, tmp_path):
    def records(w):
        pairs = [pair(w, handle, 100 * handle, end=end) for handle, end in ((1, 900), (2, 290), (3, 490))]
        return [pairs[0][0], *pairs[1], *pairs[2], pairs[0][1]]
    nodes, _ = export(analyze, trace(tmp_path / 'rank0.h.7.tfr', records), 0)
    functions = {n['attrs'][0]['value']: n for n in nodes if n['name'] == 'aten::f'}
    assert [functions[i]['ctrl_deps'] for i in (2, 3)] == [functions[1]['id']] * 2 and functions[1]['ctrl_deps'] == 2


def test_random_words(analyze, tmp_path):
    choose = random.Random(5)
    heads = [TENSOR, INT, STRING, LIST, KEYWORD, 11, 18, 3, 10]

    def word():
        return choose.choice(heads) | choose.getrandbits(8) << 16 | choose.randrange(4) << 8 | choose.randrange(4) << 32

    def records(w):
        return [r for i in range(400) for r in pair(w, i % 300, 10 * i, [word() for _ in range(choose.randrange(40))],
                                                     [word() for _ in range(choose.randrange(40))], thread=choose.randrange(5), forward=choose.randrange(5))]
    export(analyze, trace(tmp_path / 'rank0.h.7.tfr', records), 3)


def test_several_processes_and_other_traces(analyze, tmp_path, shared_traces):
    for i in range(2):
        trace(tmp_path / f'rank{i}.h.7.tfr', lambda w: pair(w, 1, 100))
    assert 'choose one with --rank or --pid' in export(analyze, tmp_path, 2)[1]
    (tmp_path / 'k.json').write_text('{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}')
    assert 'export et needs a trace of ours' in export(analyze, tmp_path / 'k.json', 1)[1]


@pytest.mark.parametrize('text, groups', [
    ('', None), ('[]', None), ('{"pg_config": 3}', None), ('{"pg_config": [1, null, "x", {}, {"ranks": "0"}]}', None), ('{"pg_config": [', None),
    ('[' * 5000, None), ('{"pg_config": [], "pg_config": []}', None),
    ('{"pg_config": [{"ranks": [0, 1]}], "world_size": 2}', [{'ranks': [], 'group_size': 2}]),
    ('{"pg_config": [{"ranks": [], "pg_name": {"a": "\\u00e9"}}, 7], "world_size": -1, "pg_count": "many"}',
     [{'pg_name': {'a': '\u00e9'}, 'ranks': [], 'group_size': 0, 'group_count': 'many'}])])
def test_process_groups(analyze, tmp_path, text, groups):
    def records(w):
        return [rec('metadata', time=1, key=w.string('distributedInfo'), value=w.string(text)), *pair(w, 1, 100)]
    nodes, _ = export(analyze, trace(tmp_path / 'rank0.h.7.tfr', records), 0)
    found = [json.loads(n['inputs']['values'][0]) for n in nodes if n['name'] == '## process_group:init ##']
    assert found == ([groups] if groups else [])
