"""test_wall_budget - `tfanalyze budget`: the leaves of a rank sum to its wall time, and each is what a second model finds.

The second model cuts time at every edge of an event and gives each piece to the first leaf whose events are open. It
shares the words of leaves.def with the analyser, and nothing else. `timeline` must agree on what it knows.
"""

import json
import re
from collections import Counter, defaultdict
from decimal import Decimal

import pytest

import kineto
from conftest import ROOT, TRACES, clean_environment, execute, short_form
from small_traces import clock_chunk
from tfr import Writer, rec

LEAVES = (ROOT / 'analysis/advise/budget/leaves.def').read_text()
PATHS = {leaf: (device, host) for leaf, device, host in re.findall(r'^LEAF\((\w+), "([^"]+)", (?:NULL|"([^"]+)")', LEAVES, re.M)}
WORDS = re.findall(r'^WORD\((\w+), "([^"]+)", (\w+)\)', LEAVES, re.M)
COMPUTING = ['MATRIX', 'ATTENTION', 'CONVOLUTION', 'NORMALISATION', 'ELEMENTWISE', 'LAYOUT', 'OTHER']
ON_DEVICE = COMPUTING + ['COMMUNICATION', 'COPY', 'COMPILE', 'LOADER', 'SYNC', 'ALLOCATOR', 'LAUNCH', 'PEER']
ON_HOST = ['COMPILE', 'LOADER', 'ATTENTION', 'CONVOLUTION', 'MATRIX', 'NORMALISATION', 'LAYOUT', 'ELEMENTWISE', 'OTHER', 'PEER']
SMALL = ['hta/trace_filter/sampled_rank-0.json.gz', 'planted/gemm_03_compute_misaligned.json.gz',
         'hta/critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz',
         'hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz', 'kineto_tb/resnet50_num_workers_0__worker0.1623143566756.pt.trace.json.gz',
         'planted/test01_moe_fused_vs_unfused/trace1.json.gz']
OTHERS = sorted({str(p.relative_to(TRACES)) for folder in ('hta', 'tracelens', 'kineto_tb', 'planted', 'replay', 'dlrm8')
                 for p in (TRACES / folder).rglob('*') if p.name.endswith(('.json', '.json.gz')) and 'execution_details' not in p.name} - set(SMALL))


def ask(tfanalyze, *words):
    result = execute([tfanalyze, *words, '--format', 'json'], clean_environment(), ROOT, 600)
    assert result.rc in (0, 3), result.err
    answers = json.loads(result.out)
    return answers if isinstance(answers, list) else [answers]


def ns(us):
    return None if us is None else round(us * 1000)


# ---- the second model ----

def rounded(document):
    """The document with times of whole nanoseconds: one trace has finer ones, which the analyser rounds."""
    for event in document['traceEvents']:
        for key in {'ts', 'dur'} & set(event):
            event[key] = round(Decimal(event[key]), 3)
    return document

def by_word(of, name):
    return next((leaf for kind, word, leaf in WORDS if kind == of and word in name.lower()), 'OTHER')


def of_host(name):
    """What an operator or annotation says of the host besides that it runs."""
    if re.match(r'enumerate\((DataLoader)\)#.*\.__next__$|enumerate\(DataPipe\)#', name):
        return 'LOADER'
    if re.match('(nccl|gloo|mpi|ucc|xccl|fake|threaded|hccl|cncl|mccl):', name):
        return 'PEER'
    return 'COMPILE' if '(dynamo_timed)' in name else None


def of_call(name):
    if re.search('ModuleLoad|LibraryLoad|ModuleGetFunction', name):
        return 'COMPILE'
    if 'Synchronize' in name and not re.search('Graph|HostFunc|Attribute', name) or 'Memcpy' in name and 'Async' not in name:
        return 'SYNC'
    return 'ALLOCATOR' if re.search('Malloc|Free|MemAlloc|HostAlloc|MemCreate|MemMap', name) else 'LAUNCH'


def of_kernel(event):
    name = event['name']
    if 'Collective name' in event.get('args', {}) or re.search('nccl|rccl|cross_device_reduce|mscclpp|oneccl|nvshmem', name, re.I):
        return 'COMMUNICATION'
    return by_word('KERNEL', name)


def happenings(document):
    """[(start, end, leaf)] of a trace, whether it has device work, and its first and last moment."""
    device, host = [], []
    for event in document['traceEvents']:
        kind = kineto.class_of(event)
        if event.get('ph') != 'X' or 'dur' not in event or not kind:
            continue
        start = kineto.nanoseconds(event['ts'])
        end = start + kineto.nanoseconds(event['dur'])
        if kind == 'kernel':
            device.append((start, end, of_kernel(event)))
        elif kind in ('memcpy', 'memset'):
            device.append((start, end, 'COPY'))
        else:
            host.append((start, end, kind, event['name']))
    found = list(device)
    for start, end, kind, name in host:
        leaf = of_call(name) if kind == 'api' else of_host(name)
        if kind == 'operator' and not leaf:
            leaf = 'LAUNCH' if device else by_word('OPERATOR', name)
        if leaf:
            found.append((start, end, leaf))
    return found, bool(device), *kineto.span(document)


def divided(found, order, first, last):
    """{leaf: nanoseconds} of the time from first to last."""
    rank, changes, times = {leaf: i for i, leaf in enumerate(order)}, defaultdict(list), Counter()
    for start, end, leaf in found:
        if start < end and leaf in rank:
            changes[max(first, min(start, last))].append((rank[leaf], 1))
            changes[max(first, min(end, last))].append((rank[leaf], -1))
    changes[first], changes[last] = changes[first], changes[last]
    open_now, moments = [0] * len(order), sorted(changes)
    for now, then in zip(moments, moments[1:]):
        for leaf, change in changes[now]:
            open_now[leaf] += change
        leaf = next((order[i] for i, count in enumerate(open_now) if count), 'UNKNOWN')
        times[leaf] += then - now
    return {leaf: time for leaf, time in times.items() if time}


# ---- tests ----

@short_form(len(SMALL), 'name', SMALL + OTHERS)
def test_each_leaf(tfanalyze, shared_traces, name):
    """The leaves of a PyTorch trace, against the second model and against `timeline`."""
    budget, timeline = ask(tfanalyze, 'budget,timeline', shared_traces / name)
    found, on_device, first, last = happenings(rounded(kineto.read(shared_traces / name)))
    expected = divided(found, ON_DEVICE if on_device else ON_HOST, first, last)
    assert {row['leaf']: ns(row['us']) for row in budget['rows']} == {PATHS[leaf][not on_device]: time for leaf, time in expected.items()}
    assert sum(ns(row['us']) for row in budget['rows']) == ns(budget['totals']['wall_us']) == last - first
    assert sum(row['pct'] for row in budget['rows']) == pytest.approx(100, abs=0.01)
    if on_device:
        of, row = {path: sum(ns(r['us']) for r in budget['rows'] if r['leaf'].startswith(path)) for path in ('computing', 'communicating', 'copying', 'idle')}, timeline['rows'][0]
        works = [(start, end) for start, end, leaf in found if leaf in COMPUTING + ['COMMUNICATION', 'COPY']]
        outside = min(start for start, _ in works) - first + last - max(end for _, end in works)
        assert of == {'computing': ns(row['computation_us']), 'communicating': ns(row['exposed_communication_us']),
                      'copying': ns(row['exposed_memcpy_us']), 'idle': ns(row['idle_us']) + outside}


@pytest.mark.parametrize('name, options, stage', [
    ('kineto_tb/resnet50_num_workers_0__worker0.1623143566756.pt.trace.json.gz', ['--step', '17'], 'ProfilerStep#17'),
    ('hta/trace_filter/sampled_rank-0.json.gz', ['--stage', 'DistributedDataParallel*'], None)])
def test_each_part(tfanalyze, shared_traces, name, options, stage):
    """The leaves of one step, and of the stages of a name until their work was done."""
    document = rounded(kineto.read(shared_traces / name))
    budget, (whole,) = ask(tfanalyze, 'budget', shared_traces / name, *options)[0], ask(tfanalyze, 'budget', shared_traces / name)
    found, on_device, _, _ = happenings(document)
    ends = {}
    for work, chain, _ in kineto.belongings(document):
        for s in chain:
            ends[id(s)] = max(ends.get(id(s), s.end), work.end)
    expected = defaultdict(Counter)
    for s in kineto.tables(document)['annotation']:
        if s.name == stage or not stage and s.name.startswith('DistributedDataParallel'):
            expected[s.name] += Counter(divided(found, ON_DEVICE, s.start, s.end if stage else ends.get(id(s), s.end)))
    rows = {(row['stage'], row['leaf']): ns(row['us']) for row in budget['rows']}
    assert rows == {(s, PATHS[leaf][0]): time for s, leaves in expected.items() for leaf, time in leaves.items()} and rows
    assert whole['totals']['wall_us'] > budget['totals']['wall_us'] == pytest.approx(sum(rows.values()) / 1000)
    assert budget['schema'] == 1 and {row['stage'] for row in whole['rows']} == {None}


UNREADABLE, FOREIGN, NO_PYTHON = 4, 16, 8
WAITS, MS = 202 + 1, 10 ** 6  # futex


@pytest.mark.parametrize('flags, leaf', [(UNREADABLE, 'Python'), (NO_PYTHON, 'waiting/system call'), (FOREIGN, 'waiting/system call')])
def test_a_running_thread_whose_stack_could_not_be_read_runs_python(tmp_path, tfanalyze, flags, leaf):
    """Else the wait of a thread for a busy one looked like the cause of all."""
    w = Writer(pid=7)
    clock_chunk(w, [(0, 0, 10 ** 18)])
    busy = [rec('sample', tid=8, time=(10 * i + 1) * MS, duration=10 * MS, cpu=10 * MS, looks=1, flags=flags) for i in range(10)]
    waits = [rec('sample', tid=7, time=MS, duration=100 * MS, call=WAITS, looks=10, flags=UNREADABLE)]
    w.chunk(sorted(busy + waits, key=lambda r: r.values['time']), thread=1, tid=7)
    w.footer()
    w.save(tmp_path / 'rank0.h.7.tfr')
    (budget,) = ask(tfanalyze, 'budget', tmp_path)
    assert {row['leaf']: row['us'] for row in budget['rows']} == {leaf: 100000.0}
