"""test_reader_export - `tfanalyze export chrome` of stages, marks and calls; an output file is whole or absent."""

import gzip
import json
import re

import pytest

import random_traces
import tfr
from small_traces import clock_chunk, export, simple, staged_trace
from tfr import NESTED, STAGE, Writer, rec


def check_chrome(trace):
    """Checks the rules of the format, and that the boxes of a thread are nested."""
    tracks, open_pairs = {}, {}
    for e in trace['traceEvents']:
        assert e['ph'] in 'XibeM' and isinstance(e['name'], str)
        assert isinstance(e['pid'], int) and isinstance(e['tid'], int)
        if e['ph'] == 'M':
            continue
        assert isinstance(e['ts'], float) and e['cat']
        if e['ph'] == 'X':
            assert isinstance(e['dur'], float) and e['dur'] >= 0
            start = round(e['ts'] * 1000)
            tracks.setdefault((e['pid'], e['tid']), []).append((start, start + round(e['dur'] * 1000)))
        elif e['ph'] == 'b':
            open_pairs[e['id'], e['cat'], e['pid']] = e
        elif e['ph'] == 'e':
            assert open_pairs.pop((e['id'], e['cat'], e['pid']))['ts'] <= e['ts']
        else:
            assert e['s'] == 't'
    assert not open_pairs
    for boxes in tracks.values():
        stack = []
        for start, end in sorted(boxes, key=lambda b: (b[0], -b[1])):
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1], (start, end, stack)
            stack.append(end)


@pytest.mark.parametrize('seed', range(25))
def test_export_chrome(tmp_path, analyze, seed):
    traces = [staged_trace(tmp_path / f'rank{r}.h.{i}.tfr', seed * 10 + i, r) for i, r in enumerate([0, 1])]
    trace = export(analyze, tmp_path)
    check_chrome(trace)
    events = [e for e in trace['traceEvents'] if e['ph'] in 'Xb' and e['cat'] == 'user_annotation']
    expected = []
    for w, clock in traces:
        last = random_traces.span(w.records, clock)[1]
        expected += [(tfr.name_of(w.strings, r['name']), float(r['start'] - trace['baseTimeNanoseconds']) / 1000,
                      r['unfinished']) for r in random_traces.ranges(w.records, clock, last) if r['flags'] & STAGE]
    assert len(events) == len(expected)
    for (name, ts, unfinished), e in zip(sorted(expected), sorted(events, key=lambda e: (e['name'], e['ts']))):
        assert e['name'] == name and abs(e['ts'] - ts) < 0.01


def test_export_details(tmp_path, analyze):
    w = Writer(rank=2, world=8, pid=50, **{'meta.run': 'x'})
    clock_chunk(w, [(0, 0, 1_700_000_000_000_000_000)])
    b = rec('range_begin', name=w.string('denoise'), time=1000, id=1, flags=NESTED | STAGE, domain=w.string('dom'),
            category=4, color=0xff00ff00, payload=0x4000000000000000, payload_type=3)
    end = tfr.end_of(b, 5000, 1)
    end.values['domain'] = w.string('dom')
    w.chunk([rec('thread', serial=1, tid=51, name=w.string('comm'), time=1), rec('thread_name', tid=51, name=w.string('worker'), time=2),
             rec('category', domain=w.string('dom'), category=4, name=w.string('compute')), b,
             rec('mark', name=w.string('hello'), time=2000, payload=7, payload_type=1),
             rec('call', func=w.string('libcudart\x1fLAUNCH\x1fcudaLaunchKernel\x1fgrid:UINT,stream:ADDRESS'), time=2000,
                 duration=1000, result=2, error=5, args=[9, 0]), end], thread=1, tid=51)
    w.footer()
    trace = export(analyze, w.save(tmp_path / 'a.tfr'))
    check_chrome(trace)
    assert trace['schemaVersion'] == 1 and trace['displayTimeUnit'] == 'ms' and trace['metadata']['run'] == 'x'
    assert trace['distributedInfo'] == {'rank': 2, 'world_size': 8}
    by_name = {e['name']: e for e in trace['traceEvents']}
    assert by_name['denoise']['args'] == {'domain': 'dom', 'category': 'compute', 'color': '#ff00ff00', 'payload': 2.0}
    assert by_name['denoise']['dur'] == 4.0 and by_name['denoise']['tid'] == 51
    assert by_name['hello']['args'] == {'payload': 7} and by_name['hello']['ph'] == 'i'
    call = by_name['cudaLaunchKernel']
    assert (call['cat'], call['args'], call['dur']) == ('launch', {'grid': 9, 'stream': '0x0', 'result': 2, 'errno': 5}, 1.0)
    assert by_name['thread_name']['args']['name'] == 'worker'
    assert trace['baseTimeNanoseconds'] + round(by_name['denoise']['ts'] * 1000) == 1_700_000_000_000_001_000


def test_export_gives_each_process_a_number_of_its_own(tmp_path, analyze):
    """Processes with pid 77 on two hosts keep apart; a file of several ranks names no rank."""
    simple(tmp_path / 'rank0.a.77.tfr', rank=0, pid=77, host='a')
    simple(tmp_path / 'rank1.b.77.tfr', rank=1, pid=77, host='b')
    trace = export(analyze, tmp_path)
    names = {e['pid']: e['args']['name'] for e in trace['traceEvents'] if e['name'] == 'process_name'}
    assert len(names) == 2 and 77 in names and 'distributedInfo' not in trace
    assert sorted(n[:7] for n in names.values()) == ['rank 0:', 'rank 1:']


def test_export_of_a_stage_and_a_window(tmp_path, analyze):
    simple(tmp_path / 'a.tfr', stages=5)
    kept = [e['name'] for e in export(analyze, '--stage', 'stage 2', tmp_path)['traceEvents'] if e['ph'] == 'X']
    assert kept == ['stage 2']
    kept = [e['name'] for e in export(analyze, '--from', 0.0082, '--to', 0.0095, tmp_path)['traceEvents'] if e['ph'] == 'X']
    assert kept == ['stage 2']
    assert 'nothing matches --stage nope' in export(analyze, '--stage', 'nope', tmp_path, rc=1).err


def test_output_is_whole_or_absent(tmp_path, analyze):
    simple(tmp_path / 'in.tfr')
    out = tmp_path / 'out.json.gz'
    analyze('export', 'chrome', tmp_path / 'in.tfr', '--output', out, format=None)
    check_chrome(json.loads(gzip.decompress(out.read_bytes())))
    assert re.search(rb'"rank":\s+(\d+)', gzip.decompress(out.read_bytes()))
    before = out.read_bytes()
    assert analyze('export', 'chrome', tmp_path / 'in.tfr', '--stage', 'no', '--output', out, format=None, rc=1).out == ''
    assert out.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ['in.tfr', 'out.json.gz']
    result = analyze('stages', tmp_path / 'in.tfr', '--output', tmp_path / 'no' / 'x', format='text', rc=1)
    assert 'cannot be written' in result.err
    (tmp_path / 'link').symlink_to(tmp_path / 'target')
    analyze('stages', tmp_path / 'in.tfr', '--output', tmp_path / 'link', format='text')
    assert (tmp_path / 'link').is_symlink() and 'stage 1' in (tmp_path / 'target').read_text()
    assert analyze('stages', tmp_path / 'in.tfr', '--output', '/dev/stdout', format='text').out.startswith('stage')
    result = analyze('stages', tmp_path / 'in.tfr', '--output', '/dev/full', format='text', rc=1)
    assert 'No space left' in result.err
