"""test_comm - collectives over ranks, against synthetic jobs, a recomputation by TraceLens's rules, and TraceLens.

tests/data/tracelens_comm.json has TraceLens's own figures (tests/tracelens_answers.py makes it). The recomputation
reads the traces itself and shares no code with the analyser. TraceLens adds doubles of microseconds; the analyser's
values differ from its own by less than a nanosecond.
"""

import gzip
import json
import math
import re
import statistics
from collections import defaultdict

import pytest

import comm_traces
import tracelens_answers
from conftest import ROOT, TRACES

HALF_NS = 1e-3
FIGURES = json.loads((ROOT / 'tests' / 'data' / 'tracelens_comm.json').read_text())
ALL = sorted(str(p.relative_to(TRACES)) for folder in ('hta', 'tracelens', 'kineto_tb')
             for p in (TRACES / folder).rglob('*') if p.name.endswith(('.json', '.json.gz'))) or ['none']


def read(path):
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b'\x1f\x8b' else data)


# ---- TraceLens's definitions, from its documentation ----

TYPE_BYTES = {'Float': 4, 'Int': 4, 'Long': 8, 'BFloat16': 2, 'Bool': 1, 'Byte': 1, 'Double': 8, 'Half': 2, 'Short': 2}
FAMILIES = {'allreduce': 'allreduce', 'allreduce_coalesced': 'allreduce', 'reducescatter': 'reducescatter',
            '_reduce_scatter_base': 'reducescatter', 'reduce_scatter_tensor_coalesced': 'reducescatter',
            'allgather': 'allgather', 'all_gather': 'allgather', '_allgather_base': 'allgather',
            'all_gather_into_tensor_coalesced': 'allgather', 'allgather_into_tensor_coalesced': 'allgather',
            'all_to_all': 'alltoall'}


def by_tracelens(files):
    """The rows that `comm --rules tracelens` must have for these ranks, by group and place in the group."""
    found, streams, grouped = defaultdict(dict), defaultdict(set), False
    for file in files:
        kernels, trace = [], read(file)
        rank = (trace.get('distributedInfo') or {}).get('rank', -1) if isinstance(trace, dict) else -1
        for e in trace['traceEvents'] if isinstance(trace, dict) else trace:
            args = e.get('args') or {}
            linked = args.get('correlation') is not None or args.get('External id') is not None
            if e.get('cat') == 'kernel' and re.search('nccl|rccl|cross_device_reduce', e.get('name', ''), re.I) and linked:
                kernels.append((e, args))
                streams[rank].add(args.get('stream'))
                grouped |= args.get('Process Group Name') is not None
        places = defaultdict(int)
        for e, args in sorted(kernels, key=lambda kernel: kernel[0]['ts']):
            group = args.get('Process Group Name', 'Unknown_Group')
            found[group, places[group]][rank] = (e, args)
            places[group] += 1
    simple = not grouped and all(len(s) <= 1 for s in streams.values())
    rows = {}
    for (group, place), ranks in found.items():
        row = tracelens_row(ranks, simple)
        if row:
            rows['all' if simple else group, place] = row
    return rows


def tracelens_row(ranks, simple):
    event, args = ranks[min(ranks)]
    name = args.get('Collective name', 'allreduce' if 'cross_device_reduce' in event['name'].lower() else None)
    starts = {r: e['ts'] for r, (e, _) in ranks.items()}
    ends = {r: e['ts'] + e['dur'] for r, (e, _) in ranks.items()}
    latest, size = max(starts.values()), args.get('Group size')
    row = {'name': name, 'ranks': len(ranks), 'size': size, 'start_skew_us': latest - min(starts.values()),
           'end_skew_us': max(ends.values()) - min(ends.values()), 'bytes': None, 'algbw_gbs': None, 'busbw_gbs': None}
    if name == 'all_to_allv':
        row['wait_us'] = row['transfer_us'] = None
        width = TYPE_BYTES[args['dtype']]
        row['bytes'] = sum(a['In msg nelems'] * width for _, a in ranks.values())
        row['duration_us'] = max(ends.values()) - min(starts.values())
        row['algbw_gbs'] = row['bytes'] / 2 ** 30 / (row['duration_us'] / 1e6)
        return row
    if name not in FAMILIES and not simple:
        return None
    row['transfer_us'] = min(e['dur'] for e, _ in ranks.values())
    row['wait_us'] = {str(r): latest - start for r, start in starts.items()}
    row['last_rank'] = min(r for r in starts if starts[r] == latest)
    width, elements = TYPE_BYTES.get(args.get('dtype')), args.get('In msg nelems')
    if name in FAMILIES and width and elements is not None:
        family = FAMILIES[name]
        row['bytes'] = width * (args['Out msg nelems'] if family == 'allgather' else elements)
        row['algbw_gbs'] = row['bytes'] / 2 ** 30 / (row['transfer_us'] / 1e6)
        if size is not None:
            row['busbw_gbs'] = row['algbw_gbs'] * (size - 1) / size * (2 if family == 'allreduce' else 1)
    return row


def check_rows(rows, expected):
    found = {(row['group'], row['seq']): row for row in rows}
    assert len(found) == len(rows)
    assert set(found) == set(expected)
    for key, row in expected.items():
        for name, value in row.items():
            tolerance = {'rel': 1e-9} if name.endswith('gbs') else {'rel': 0, 'abs': HALF_NS}
            same = found[key][name] == (value if value is None or isinstance(value, str) else pytest.approx(value, **tolerance))
            assert same, f'{key} {name}: {found[key][name]} instead of {value}'


def ask_tracelens(analyze, files, expected):
    """The rows of `comm --rules tracelens`; status 3 if a group has ranks without a file."""
    lacking = any(row['size'] and row['ranks'] < row['size'] for row in expected.values())
    return analyze('comm', '--rules', 'tracelens', *files, rc=3 if lacking else 0)['rows']


@pytest.mark.parametrize('trace', ALL)
def test_tracelens_on_every_trace(analyze, shared_traces, trace):
    expected = by_tracelens([shared_traces / trace])
    check_rows(ask_tracelens(analyze, [shared_traces / trace], expected), expected)


@pytest.mark.soak
def test_some_traces_have_collectives(shared_traces):
    assert sum(bool(by_tracelens([shared_traces / trace])) for trace in ALL) >= 2


@pytest.fixture(scope='module')
def jobs(shared_traces, tmp_path_factory):
    return tracelens_answers.jobs(shared_traces, tmp_path_factory.mktemp('jobs'))


@pytest.mark.slow
@pytest.mark.parametrize('name', FIGURES['jobs'])
def test_tracelens_on_many_ranks(analyze, jobs, name):
    expected = by_tracelens(jobs[name])
    check_rows(ask_tracelens(analyze, jobs[name], expected), expected)


@pytest.mark.slow
@pytest.mark.parametrize('name', FIGURES['jobs'])
def test_figures_of_tracelens_itself(analyze, jobs, name):
    """The rows equal those of TraceLens's own source for the same files; its ranks are places in the list."""
    ranks = [str(read(path)['distributedInfo']['rank']) for path in jobs[name]]
    rows = ask_tracelens(analyze, jobs[name], by_tracelens(jobs[name]))
    simple = any(row['group'] == 'all' for row in rows)
    found = {str(row['seq']) if simple else f'{row["group"]}_{row["seq"]}': row for row in rows}
    met, uneven = FIGURES['jobs'][name]['met'], FIGURES['jobs'][name]['uneven']
    assert len(rows) == met['rows'] + uneven['rows']
    for figure in met['first'] + uneven['first']:
        row = found[figure['collective_id']]
        keys = {'Collective name': 'name', 'skew in start time': 'start_skew_us', 'skew in end time': 'end_skew_us'}
        if 'wait' in figure:
            keys.update({'comm_latency': 'transfer_us', 'algo bw (GB/s)': 'algbw_gbs', 'bus bw (GB/s)': 'busbw_gbs'})
            size = figure['Full msg size (MB)']
            waits = {ranks[int(place)]: wait for place, wait in figure['wait'].items()}
            assert row['wait_us'] == pytest.approx(waits, rel=0, abs=HALF_NS)
        else:
            keys.update({'wall_time (us)': 'duration_us', 'throughput (GB/s)': 'algbw_gbs'})
            size = figure['total data communicated (MB)']
        assert row['bytes'] == (None if size is None else size * 2 ** 20)
        for theirs, ours in keys.items():
            value = figure[theirs]
            if isinstance(value, float):
                value = pytest.approx(value, rel=1e-9, abs=HALF_NS)
            assert row[ours] == value, f'{figure["collective_id"]} {theirs}'


# ---- our own definitions, from the truth of a synthetic job ----

FACTORS = {'all_reduce': lambda n: 2 * (n - 1) / n, 'all_gather': lambda n: (n - 1) / n, 'broadcast': lambda n: 1,
           'reduce_scatter': lambda n: (n - 1) / n, 'all_to_all': lambda n: (n - 1) / n, 'reduce': lambda n: 1}
OURS = {'allreduce': 'all_reduce', 'allreduce_coalesced': 'all_reduce', '_allgather_base': 'all_gather',
        'all_gather_into_tensor_coalesced': 'all_gather', '_reduce_scatter_base': 'reduce_scatter',
        'all_to_all': 'all_to_all', 'all_to_allv': 'all_to_all', 'broadcast': 'broadcast', '_reduce_oop': 'reduce'}
MEET = ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all')


def true_row(one):
    """The row of a collective of comm_traces.job, in nanoseconds."""
    say, spans = one['say'], one['spans']
    name = OURS[next(iter(say.values()))['Collective name']]
    latest, last_end = max(s for s, _ in spans.values()), max(e for _, e in spans.values())
    size = max(one['bytes'] * max(s['In msg nelems'], s['Out msg nelems']) for s in say.values())
    transfer = min(e - s for s, e in spans.values()) if name in MEET else last_end - latest
    return {'name': name, 'ranks': len(spans), 'size': len(spans), 'bytes': size,
            'start_skew_us': latest - min(s for s, _ in spans.values()), 'transfer_us': transfer,
            'end_skew_us': last_end - min(e for _, e in spans.values()),
            'duration_us': max(e - s for s, e in spans.values()),
            'wait_us': {str(r): latest - s for r, (s, _) in spans.items()}, 'algbw_gbs': size / transfer,
            'busbw_gbs': size / transfer * FACTORS[name](len(spans)),
            'last_rank': min(r for r, (s, _) in spans.items() if s == latest),
            'slowest_rank': min(r for r, (_, e) in spans.items() if e == last_end)}


def check_truth(rows, truth, first=1):
    """Compares rows with the truth; `first` is the number of the first collective's row in a group."""
    found = {(row['group'], row['seq']): row for row in rows}
    assert len(found) == len(rows) == len(truth)
    for one in truth:
        say = next(iter(one['say'].values()))
        row = found[say['Process Group Name'], one['seq'] - 1 + first]
        for key, value in true_row(one).items():
            if key == 'wait_us':
                assert {r: round(w * 1000) for r, w in row[key].items()} == value
            elif key.endswith('_us'):
                assert round(row[key] * 1000) == value, (key, one)
            elif key.endswith('_gbs'):
                assert row[key] == pytest.approx(value, rel=1e-12), (key, one)
            else:
                assert row[key] == value, (key, one)


@pytest.mark.parametrize('sequences', [False, True], ids=['by-time', 'by-number'])
def test_a_made_job(analyze, tmp_path, sequences):
    paths, truth = comm_traces.job(tmp_path, world=6, count=120, seed=11, sequences=sequences)
    answer = analyze('comm', *paths)
    check_truth(answer['rows'], truth, first=1 if sequences else 0)
    assert answer['totals']['collectives'] == len(truth) and answer['totals']['ranks'] == 6
    spreads = sorted(row['end_skew_us'] for row in answer['rows'] if row['name'] in MEET)
    middle = len(spreads) // 2
    median = spreads[middle] if len(spreads) % 2 else (spreads[middle - 1] + spreads[middle]) / 2
    assert answer['totals']['clock_residual_us'] == pytest.approx(median, abs=1e-3)


def test_order_of_inputs_and_threads_change_nothing(analyze, tmp_path):
    paths, _ = comm_traces.job(tmp_path, world=7, count=60, seed=3)
    rows = [analyze('comm', '-j', jobs, *order)['rows']
            for jobs in ('1', '2', '5') for order in (paths, paths[::-1], paths[3:] + paths[:3])]
    assert rows[0] and all(r == rows[0] for r in rows)


def test_numbers_match_traces_with_different_beginnings(analyze, tmp_path):
    """Recorded numbers match collectives of traces that begin at different places; counting would mix them up."""
    paths, truth = comm_traces.job(tmp_path, world=4, count=40, seed=5, sequences=True,
                                   skip=lambda rank, number: rank == 2 and number < 9)
    rows = analyze('comm', *paths, rc=3)['rows']
    whole = [row for row in rows if row['ranks'] == row['size']]
    late = [one for one in truth if 2 not in one['spans'] or one in truth[-len(whole):]]
    found = {(row['group'], row['seq']) for row in whole}
    kept = [one for one in truth if (next(iter(one['say'].values()))['Process Group Name'], one['seq']) in found]
    assert len(kept) == len(whole) > 20 and late
    check_truth(whole, kept)
    assert all('2' not in row['wait_us'] for row in rows if row['ranks'] < row['size'] and row['wait_us'])


# ---- what is missing ----

def test_a_missing_rank(analyze, tmp_path):
    paths, truth = comm_traces.job(tmp_path)
    result = analyze('comm', *paths[:-1], rc=3, format=None)
    assert 'lack ranks' in result.err and 'group 0 of ranks [0, 1, 2, 3] with 3 of 4' in result.err
    rows = analyze('comm', *paths[:-1], rc=3)['rows']
    assert len(rows) == len(truth)
    assert {row['ranks'] for row in rows if row['group'] == '0'} == {3}
    alone = [row for row in rows if row['group'] == '2']
    assert alone and all(row['start_skew_us'] is row['wait_us'] is row['last_rank'] is None for row in alone)
    assert all(row['transfer_us'] == row['duration_us'] for row in alone)
    analyze('comm', '--rank', '0-2', *paths)  # only ranks with a file are selected


def test_without_a_time_of_day(analyze, tmp_path):
    """Two collectives are too few to align clocks: the order of arrival is unknown, but durations show which rank waited."""
    paths, truth = comm_traces.job(tmp_path, count=2, base=None)
    result = analyze('comm', *paths, format=None)
    assert '3 of 4 clocks cannot be compared: traces have no time of day (baseTimeNanoseconds)' in result.err
    rows = {(row['group'], row['seq']): row for row in analyze('comm', *paths)['rows']}
    for one in truth:
        row = rows[next(iter(one['say'].values()))['Process Group Name'], one['seq'] - 1]
        expected = true_row(one)
        assert row['start_skew_us'] is row['end_skew_us'] is row['clock_residual_us'] is None
        times = {str(r): e - s for r, (s, e) in one['spans'].items()}
        if expected['name'] in MEET:
            assert {r: round(w * 1000) for r, w in row['wait_us'].items()} == {r: t - min(times.values()) for r, t in times.items()}
            assert round(row['transfer_us'] * 1000) == expected['transfer_us']
        else:
            assert row['wait_us'] is row['transfer_us'] is row['algbw_gbs'] is None


def check_alignment(analyze, paths, truth, drifts):
    """Skew and waiting are the true ones to within the spread of the ends of a collective on its ranks."""
    answer = analyze('comm', *paths)
    spans = [one['spans'] for one in truth if OURS[next(iter(one['say'].values()))['Collective name']] in MEET]
    spreads = sorted(max(e for _, e in s.values()) - min(e for _, e in s.values()) for s in spans)
    true_residual, most = statistics.median(spreads) / 1000, spreads[-1] / 1000
    assert true_residual / 2 <= answer['totals']['clock_residual_us'] <= 2 * true_residual
    assert set(answer['totals']['clock_offset_us']) == {str(r) for r in range(1, len(paths))}
    for rank, drift in answer['totals']['clock_drift_ppm'].items():
        assert drift == pytest.approx(-1e6 * drifts[int(rank)], abs=5)
    rows = {(row['group'], row['seq']): row for row in answer['rows']}
    assert len(rows) == len(truth)
    for one in truth:
        row, expected = rows[next(iter(one['say'].values()))['Process Group Name'], one['seq'] - 1], true_row(one)
        assert row['start_skew_us'] == pytest.approx(expected['start_skew_us'] / 1000, abs=most)
        for rank, wait in expected['wait_us'].items():
            assert row['wait_us'][rank] == pytest.approx(wait / 1000, abs=most)
        assert row['clock_residual_us'] == answer['totals']['clock_residual_us']
    return answer


@pytest.mark.parametrize('base', [comm_traces.BASE, None], ids=['times-of-day', 'no-times-of-day'])
def test_clocks_of_several_hosts(analyze, tmp_path, base):
    """The ends of collectives show offsets of milliseconds and drifts of up to 100 ppm."""
    paths, truth = comm_traces.job(tmp_path, world=4, count=200, seed=21, base=base)
    offsets, drifts = [0, 3_000_000, -7_000_000, 123_456], [0, 100e-6, -50e-6, 0]
    for rank, path in enumerate(paths):
        comm_traces.skewed(path, offsets[rank], drifts[rank], f'host{rank}')
    answer = check_alignment(analyze, paths, truth, drifts)
    result = analyze('comm', *paths, format=None)
    assert '3 clocks are aligned to that of another rank by the ends of collectives' in result.err
    [first, last] = [f(s for one in truth for s, _ in one['spans'].values()) for f in (min, max)]
    for rank in (1, 2, 3):  # the offset holds at a moment inside the run
        found = -1000 * answer['totals']['clock_offset_us'][str(rank)]
        bounds = sorted(offsets[rank] + drifts[rank] * at for at in (first, last))
        assert bounds[0] - 2000 <= found <= bounds[1] + 2000


def test_outliers_move_no_clock(analyze, tmp_path):
    """A rank that ends a few collectives milliseconds later, as if it were stopped, changes no alignment."""
    paths, truth = comm_traces.job(tmp_path, world=4, count=120, seed=22)
    trace = json.loads(paths[1].read_text())
    for e in [e for e in trace['traceEvents'] if e['cat'] == 'kernel'][::10]:
        e['dur'] += 5000
    paths[1].write_text(json.dumps(trace))
    for rank, path in enumerate(paths):
        comm_traces.skewed(path, 1_000_000 * rank, 0, f'host{rank}')
    check_alignment(analyze, paths, truth, [0] * 4)


def test_clocks_that_meet_through_others(analyze, tmp_path):
    """Rank 2 shares collectives with rank 1 only, and rank 1 with rank 0: all of them get one time."""
    events = {rank: [] for rank in range(3)}
    for number in range(40):
        group, ranks = (('a', (0, 1)), ('b', (1, 2)))[number % 2]
        say, start = comm_traces.description('allreduce', (10, 10), 'Float', 2, group, list(ranks)), 1_000_000 * (number + 1)
        for rank in ranks:
            events[rank] += comm_traces.collective(say, number, start + 1000 * rank, start + 50_000, rank)
    for rank in events:
        path = comm_traces.write(tmp_path / f'{rank}.json', rank, 3, events[rank])
        comm_traces.skewed(path, 40_000_000 * rank, 0, f'host{rank}')
    answer = analyze('comm', tmp_path)
    assert answer['totals']['clock_offset_us'] == {'1': -40_000, '2': -80_000}
    assert {row['start_skew_us'] for row in answer['rows']} == {1} and answer['totals']['clock_residual_us'] == 0


def test_without_a_description(analyze, shared_traces):
    """Kernels without descriptions are matched by operation and order, and have no bytes."""
    [path] = (shared_traces / 'hta' / 'df_index_resolver').iterdir()
    answer = analyze('comm', path)
    assert answer['totals']['collectives'] == 2020
    assert {(row['name'], row['group'], row['bytes'], row['busbw_gbs']) for row in answer['rows']} == {('all_reduce', None, None, None)}
    assert 'have no communicator in the trace' in analyze('comm', path, format=None).err


def test_a_sequence_that_restarts(analyze, tmp_path):
    """After an abort the communicator counts from 1 again: the two epochs are matched separately."""
    def trace(rank, lost):
        events = []
        for place, sequence in enumerate([1, 2, 3, 4, 1, 2]):
            if place not in lost:
                say = comm_traces.description('allreduce', (10, 10), 'Float', 2, '0', [0, 1])
                start = 1_000_000 * (place + 1) + 1000 * rank
                events += comm_traces.collective(say, place, start, 1_000_000 * (place + 1) + 50_000, rank, sequence=sequence)
        return comm_traces.write(tmp_path / f'{rank}.json', rank, 2, events)
    paths = [trace(0, ()), trace(1, (3,))]
    answer = analyze('comm', *paths, rc=3)
    assert [(row['seq'], row['ranks']) for row in answer['rows']] == [(1, 2), (2, 2), (3, 2), (4, 1), (1, 2), (2, 2)]
    assert {row['start_skew_us'] for row in answer['rows']} == {1, None}
    assert 'sequence numbers restart 2 times' in analyze('comm', *paths, rc=3, format=None).err


def test_calls_that_share_a_number(analyze, tmp_path):
    """Grouped calls share one number and are told apart by their order."""
    say = comm_traces.description('allreduce', (10, 10), 'Float', 2, '0', [0, 1])
    paths = []
    for rank in (0, 1):
        events = []
        for place, sequence in enumerate([5, 5, 5, 6]):
            events += comm_traces.collective(say, place, 1_000_000 * (place + 1) + 100 * place * rank, 1_000_000 * (place + 1) + 90_000,
                                             rank, sequence=sequence)
        paths.append(comm_traces.write(tmp_path / f'{rank}.json', rank, 2, events))
    rows = analyze('comm', *paths)['rows']
    assert [(row['seq'], row['ranks'], row['start_skew_us']) for row in rows] == [(5, 2, 0), (5, 2, 0.1), (5, 2, 0.2), (6, 2, 0.3)]


def test_two_jobs_in_one_directory(analyze, tmp_path):
    """The collectives of two jobs with the same ranks at different times do not mix."""
    truths = []
    for number, start in enumerate((0, 3600)):
        place = tmp_path / f'job{number}'
        place.mkdir()
        paths, truth = comm_traces.job(place, world=4, count=10 + number, seed=number, base=comm_traces.BASE + start * 10 ** 9)
        truths.append(truth)
        for path in paths:
            path.rename(tmp_path / f'{number}-{path.name}')
    result = analyze('comm', tmp_path, format=None)
    assert 'of 2 separate times' in result.err
    rows = analyze('comm', tmp_path)['rows']
    check_truth(rows[:len(truths[0])], truths[0], first=0)
    check_truth(rows[len(truths[0]):], truths[1], first=0)


def test_operations_that_do_not_agree(analyze, tmp_path):
    for rank, names in enumerate((['allreduce', 'broadcast'], ['allreduce', 'allreduce'])):
        events = []
        for place, name in enumerate(names):
            say = comm_traces.description(name, (10, 10), 'Float', 2, '0', [0, 1])
            events += comm_traces.collective(say, place, 1_000_000 * (place + 1), 1_000_000 * (place + 1) + 90_000, rank,
                                             kernel='AllReduce' if name == 'allreduce' else 'Broadcast')
        comm_traces.write(tmp_path / f'{rank}.json', rank, 2, events)
    result = analyze('comm', tmp_path, rc=3, format=None)
    assert '1 of 2 collectives differ on their ranks in operation' in result.err
    assert analyze('comm', tmp_path, rc=3)['totals']['mismatched'] == 1


def test_nothing_to_match(analyze, shared_traces):
    [path] = (shared_traces / 'hta' / 'triton_example').iterdir()
    result = analyze('comm', path, format=None)
    assert 'no collectives' in result.err
    assert analyze('comm', path)['rows'] == []


def test_rules_without_a_meaning(analyze, tmp_path):
    paths, _ = comm_traces.job(tmp_path, count=1)
    assert 'hta' in analyze('comm', '--rules', 'hta', *paths, rc=2, format=None).err


# ---- other kinds of events ----

def test_messages_of_two_ranks(analyze, tmp_path):
    """A send is matched with the other rank's recv, in the order of the pair, regardless of messages to other ranks."""
    plan = [(0, 1), (2, 1), (0, 1), (1, 0), (0, 2)]
    events, truth = {r: [] for r in range(3)}, []
    for number, (source, target) in enumerate(plan):
        for rank, name in ((source, 'send'), (target, 'recv')):
            say = comm_traces.description(name, (1000, 1000), 'Half', 3, '0', [0, 1, 2])
            say.update({'Src Rank': source, 'Dst Rank': target})
            start = 1_000_000 * (number + 1) + (500 if name == 'recv' else 0)
            events[rank] += comm_traces.collective(say, number, start, 1_000_000 * (number + 1) + 40_500, rank, kernel='SendRecv')
        truth.append({str(source), str(target)})
    paths = [comm_traces.write(tmp_path / f'{r}.json', r, 3, events[r]) for r in events]
    rows = analyze('comm', *paths)['rows']
    assert [set(row['wait_us']) for row in rows] == truth
    assert {(row['ranks'], row['size'], row['bytes'], row['start_skew_us'], row['transfer_us']) for row in rows} == {(2, 2, 2000, 0.5, 40)}
    assert all(row['busbw_gbs'] == row['algbw_gbs'] == 0.05 for row in rows)


def test_works_of_gloo(analyze, tmp_path):
    """gloo, a backend of the host: annotations last until the work is done, and inputs give the bytes."""
    for rank in (0, 1):
        events = [comm_traces.event('user_annotation', 'gloo:all_reduce', 1_000_000 + 200_000 * rank, 1_300_000, 8, 500 + rank,
                                    **{'Input Dims': [[10, 100], [24]], 'Input type': ['float', 'float']}),
                  comm_traces.event('user_annotation', 'gloo:barrier', 2_000_000, 2_100_000, 8, 500 + rank),
                  comm_traces.event('user_annotation', 'forward', 500_000, 4_000_000, 1, 500 + rank)]
        comm_traces.write(tmp_path / f'{rank}.json', rank, 2, events)
    first, second = analyze('comm', tmp_path)['rows']
    assert (first['name'], first['bytes'], first['start_skew_us'], first['transfer_us']) == ('all_reduce', 4096, 200, 100)
    assert first['wait_us'] == {'0': 200, '1': 0} and first['last_rank'] == 1
    assert (second['name'], second['bytes'], second['algbw_gbs']) == ('barrier', None, None)


@pytest.mark.parametrize('kernel, name', [
    ('void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(RankData*)', 'all_reduce'),
    ('void two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16>()', 'all_reduce'),
    ('void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()', 'all_reduce'),
    ('hcclReduceScatterKernel', 'reduce_scatter'),
    ('hcom_allGather__611_2_1', 'all_gather'),
    ('void tensorrt_llm::kernels::mnnvl::twoshot_allreduce_kernel<8, __nv_bfloat16>()', 'all_reduce'),
    ('void oneccl_all_gather_large<float>()', 'all_gather'),
    ('rcclGenericKernel_1', 'rcclGenericKernel_1'),
])
def test_kernels_of_other_libraries(analyze, tmp_path, kernel, name):
    for rank in (0, 1):
        events = [comm_traces.event('kernel', kernel, 1_000_000 + 10_000 * rank, 1_100_000, 7, rank, correlation=3, stream=7, device=rank)]
        comm_traces.write(tmp_path / f'{rank}.json', rank, 2, events)
    [row] = analyze('comm', tmp_path)['rows']
    assert (row['name'], row['group'], row['ranks'], row['start_skew_us']) == (name, None, 2, 10)


# ---- filters ----

def test_a_filter_changes_no_match(analyze, tmp_path):
    """A collective that a filter selects on one rank is shown with all its ranks."""
    paths, truth = comm_traces.job(tmp_path, world=4, count=30, seed=9)
    everything = analyze('comm', *paths)['rows']
    streams = analyze('comm', '--stream', '21', *paths)['rows']
    assert streams == [row for row in everything if row['group'] == '1']
    begin = min(s for one in truth for s, _ in one['spans'].values()) - 30_000
    window = analyze('comm', '--from', '0.010', '--to', '0.020', *paths)['rows']
    inside = sum(any(s - begin < 20_000_000 and e - begin > 10_000_000 for s, e in one['spans'].values()) for one in truth)
    assert len(window) == inside and [row for row in everything if row in window] == [
        row for row in window if row in everything]
    assert len(analyze('comm', '--top', '5', *paths)['rows']) == 5
    assert '--stream 99' in analyze('comm', '--stream', '99', *paths, rc=1, format=None).err


def test_of_a_stage(analyze, tmp_path):
    """A kernel belongs to the stage in which its call was made."""
    events = []
    for place in range(4):
        say = comm_traces.description('allreduce', (10, 10), 'Float', 1, '0', [0])
        start = 1_000_000 * (place + 1)
        events += comm_traces.collective(say, place, start, start + 90_000, 0)
        events.append(comm_traces.event('user_annotation', f'stage{place % 2}', start - 40_000, start - 10_000, 1, 500))
    path = comm_traces.write(tmp_path / 'stages.json', 0, 1, events)
    rows = analyze('comm', path)['rows']
    assert analyze('comm', '--stage', 'stage1', path)['rows'] == [rows[1], rows[3]]
    assert math.isclose(rows[0]['busbw_gbs'], 0)


# ---- traces of an enemy ----

@pytest.mark.parametrize('command', ['comm', 'stragglers'])
def test_times_of_an_enemy(analyze, tfanalyze_asan, tmp_path, command):
    """Times at the limits of what a trace can have, on clocks that have nothing in common, overflow nothing."""
    extremes = [-1.1e15, -1, 0, 1, 1e9, 1.1e15, 2.2e15]
    for rank in range(3):
        say, events = comm_traces.description('allreduce', (2 ** 62, 2 ** 63), 'Double', 3, '0', [0, 1, 2]), []
        for number in range(21):
            kernel = comm_traces.collective(say, number, 0, 0, rank, sequence=number)[-1]
            kernel['ts'], kernel['dur'] = extremes[(number * (rank + 1) + rank) % 7], [0, 1, 1.1e15][(number + rank) % 3]
            events.append(kernel)
        comm_traces.write(tmp_path / f'{rank}.json', rank, 3, events, None)
    analyze(command, tmp_path, rc=3, program=tfanalyze_asan)  # their order is none, so ranks are lacking


def test_names_of_an_enemy(analyze, tmp_path):
    """A terminal gets no byte of a group's name or list of ranks that it would obey."""
    say = comm_traces.description('allreduce', (10, 10), 'Float', 4, 'evil\x1b]0;x\x07', '[0\x1b[2J')
    paths = [comm_traces.write(tmp_path / f'{r}.json', r, 4, comm_traces.collective(say, 0, 1_000_000, 2_000_000, r)) for r in (0, 1)]
    result = analyze('comm', *paths, rc=3, format=None)
    assert 'evil' in result.out and 'evil' in result.err and '\x1b' not in result.out + result.err


def test_a_description_with_wrong_values(analyze, tmp_path):
    """The size of the group, which one rank does not tell, comes from another rank."""
    good = comm_traces.description('allreduce', (10, 10), 'Float', 2, '0', [0, 1])
    bad = {**good, 'Group size': 'two', 'In msg nelems': -3, 'dtype': 7, 'Seq': -1}
    paths = [comm_traces.write(tmp_path / f'{r}.json', r, 2, comm_traces.collective(say, 0, 1_000_000, 2_000_000, r))
             for r, say in enumerate((bad, good))]
    [row] = analyze('comm', *paths)['rows']
    assert (row['ranks'], row['size'], row['bytes'], row['seq']) == (2, 2, 40, 0)
