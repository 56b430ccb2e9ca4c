"""test_page - `report --html` and `diff --html`: the policy of a page, its data against the commands' answers, and what is refused."""

import base64
import gzip
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser

import pytest

import kineto
import tfr
from conftest import ROOT, clean_environment, execute
from small_traces import clock_chunk
from tfr import NESTED, STAGE, Writer, rec

RANKS, HOST = 'hta/trace_filter', 'hta/cpu_only'
QWEN = 'tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz'
PAIR = 'planted/test01_moe_fused_vs_unfused'
HOSTILE = ['</script><script>window.bad = 1</script>', '"\'><img src=x onerror="window.bad=1">', '<!--', ']]>', '\u202etxt', '\\u003c/script>', '`${window.bad=1}`', 'x' * 1_000_000]


class Parsed(HTMLParser):
    """The elements of a page with their attributes, and the texts of its scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.inside = [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag if tag in ('script', 'style') else None
        if self.inside:
            self.texts.append((tag, dict(attrs), ''))

    def handle_data(self, data):
        if self.inside:
            tag, attrs, before = self.texts[-1]
            self.texts[-1] = (tag, attrs, before + data)

    def handle_endtag(self, tag):
        self.inside = None


def ask(tfanalyze, *words, rc=0):
    result = execute([tfanalyze, *words], clean_environment(), ROOT, 240)
    assert result.rc == rc, result.err
    return result


def page_of(tfanalyze, path, *words, rc=0):
    ask(tfanalyze, *words, '--html', path, rc=rc)
    return path.read_text()


def data_of(text):
    (_, attributes, content), = [t for t in Parsed(text).texts if t[1].get('id') in ('data', 'packed')]
    return json.loads(content if attributes['id'] == 'data' else gzip.decompress(base64.b64decode(content, validate=True)))


def check_policy(text):
    """The page loads nothing, and its policy names the hashes of its own style and script alone."""
    parsed = Parsed(text)
    policy, = [a['content'] for _, a in parsed.elements if a.get('http-equiv') == 'Content-Security-Policy']
    rules = dict(rule.split(' ', 1) for rule in policy.split('; '))
    own = {tag: [content for t, a, content in parsed.texts if t == tag and 'type' not in a] for tag in ('style', 'script')}
    assert rules.pop('default-src') == rules.pop('base-uri') == rules.pop('form-action') == "'none'"
    for tag in ('style', 'script'):
        content, = own[tag]
        assert rules.pop(f'{tag}-src') == f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
    assert not rules
    names = {name for _, attributes in parsed.elements for name in attributes}
    assert not {n for n in names if n.startswith('on') or n in ('src', 'href', 'style')}
    assert {tag for tag, _ in parsed.elements} == {'html', 'head', 'meta', 'title', 'style', 'body', 'header', 'nav', 'main', 'noscript', 'p', 'code', 'script'}
    return parsed


def answers(tfanalyze, part, *inputs):
    """What the command answers that the page names above the table."""
    words = part['asked'].split()[1:]
    words += ['--sort-by', SORTED[part['id']], '--top', str(part['top'])] if part['id'] in SORTED else ['--top', str(part['top'])] if part['top'] else []
    result = execute([tfanalyze, *words, '--format', 'json', *inputs], clean_environment(), ROOT, 240)
    assert result.rc in (0, 1, 3), result.err
    return json.loads(result.out) if result.out else None


SORTED = {'startup': 'own_us', 'ops': 'self_cpu_time_total', 'breakdown': 'total_us', 'roofline': 'device_us', 'hotspots': 'wall_us', 'comm': 'duration_us', 'stragglers': 'late_us', 'io': 'total_us'}


@pytest.mark.slow
@pytest.mark.parametrize('name', [RANKS, HOST, QWEN])
def test_the_data_are_the_answers(tfanalyze, shared_traces, tmp_path, name):
    path = shared_traces / name
    text = page_of(tfanalyze, tmp_path / 'page.html', 'report', path)
    check_policy(text)
    data = data_of(text)
    assert data['kind'] == 'run' and len(data['runs']) == 1 and len(data['runs'][0]['parts']) == 16
    for part in data['runs'][0]['parts']:
        answer = answers(tfanalyze, part, path)
        assert part['answer'] == answer or (not answer and not part['answer']['rows']), part['id']


@pytest.mark.slow
def test_two_runs(tfanalyze, shared_traces, tmp_path):
    a, b = sorted((shared_traces / PAIR).iterdir())
    text = page_of(tfanalyze, tmp_path / 'page.html', 'diff', a, b)
    check_policy(text)
    data = data_of(text)
    for run, path in zip(data['runs'], (a, b)):
        assert [part['id'] for part in run['parts']] == ['info', 'budget', 'advise', 'stages']
        for part in run['parts']:
            assert part['answer'] == answers(tfanalyze, part, path), part['id']
    assert [part['id'] for part in data['parts']] == ['finding', 'stage', 'op', 'kernel']
    for part in data['parts']:
        assert part['answer'] == answers(tfanalyze, part, a, b) and part['answer']['rows'], part['id']


@pytest.mark.parametrize('name', [RANKS, QWEN])
def test_a_report_has_the_page(tfanalyze, shared_traces, tmp_path, name):
    """It is the page of --html to the byte; the other files stay as they are without it."""
    path = shared_traces / name
    ask(tfanalyze, 'report', path, '--output', tmp_path / 'all')
    assert (tmp_path / 'all' / 'report.html').read_text() == page_of(tfanalyze, tmp_path / 'page.html', 'report', path)
    ask(tfanalyze, 'report', path, '--output', tmp_path / 'filtered', '--from', 0)
    others = {file.name: file.read_bytes() for file in (tmp_path / 'filtered').iterdir()}
    assert len(others) >= 3 and set(others) == {file.name for file in (tmp_path / 'all').iterdir()} - {'report.html'}


def test_a_page_that_fails_fails_no_report(tfanalyze, tmp_path):
    """No file may be longer than 4 KiB, and the page is."""
    path, out = kineto.Trace().stage('s', 0, 100).operator('op', 10, 50).write(tmp_path / 'in.json'), tmp_path / 'out'
    whole = ask(tfanalyze, 'report', path, '--output', out, '--format', 'json')
    assert 'report.html' in {name.rsplit('/')[-1] for name in json.loads(whole.out)['totals']['files']}
    limited = execute(['bash', '-c', 'ulimit -f 4; exec "$@"', 'bash', tfanalyze, 'report', path, '--output', out, '--format', 'json'], clean_environment(), ROOT, 240)
    assert limited.rc == 0 and 'report.html' in limited.err
    files = {name.rsplit('/')[-1] for name in json.loads(limited.out)['totals']['files']}
    assert files == {name.rsplit('/')[-1] for name in json.loads(whole.out)['totals']['files']} - {'report.html'}


SECRET = '<b>&"'


def sampled(path):
    """Ten periods of a thread inside two stages, and one of 0.5 us, which no screen shows. Returns {(stage, frames from outside): us}."""
    w, truth = Writer(clock='monotonic'), Counter()
    clock_chunk(w, [(0, 1_000_000_000, 1_700_000_000_000_000_000)])
    outer, inner, library = ('<module>', '/job/run.py', 9), (f'step{SECRET}', '/job/run.py', 4), ('mul', '/usr/lib/python3.11/mul.py', 7)
    records = [rec('thread', serial=1, tid=4242, name=w.string('main'), time=5_000_000)]
    for i, stage in enumerate(('load', f'denoise{SECRET}')):
        begin = rec('range_begin', name=w.string(stage), time=10_000_000 + i * 20_000_000, id=i + 1, flags=NESTED | STAGE)
        records += [begin, tfr.end_of(begin, begin.values['time'] + 20_000_000, 1)]
    for i in range(10):
        frames = [(outer,), (inner, outer), (library, inner, outer)][i % 3]
        records.append(rec('sample', tid=4242, time=10_000_000 + i * 4_000_000, duration=4_000_000, cpu=3_000_000, stack=w.stack(*frames), looks=1))
        path_of = tuple(f'{file}({line}): {name}' for name, file, line in reversed(frames))
        for depth in range(len(path_of) + 1):
            truth[('load', f'denoise{SECRET}')[i >= 5], *path_of[:depth]] += 4000
    records.append(rec('sample', tid=4242, time=50_000_000, duration=500, cpu=0, stack=w.stack(('tiny', '/job/run.py', 1), outer), looks=1))
    w.chunk(sorted(records, key=lambda r: r.values['time']), thread=1, tid=4242)
    w.footer()
    w.save(path)
    return truth


def calls_of(flames):
    """{(stage, frames from outside): us} of a page's flame graph."""
    found = {}
    for stage in flames['stages']:
        path = [stage['stage']]
        found[tuple(path)] = stage['total_us']
        for frame, depth, time, own in stage['nodes']:
            assert 1 <= depth <= len(path) and own == (not flames['frames'][frame].startswith('/usr'))
            path[depth:] = [flames['frames'][frame]]
            found[tuple(path)] = time
    return found


def test_the_flame_graph(tfanalyze, tmp_path):
    """The time of each call by stage, from the samples themselves; what no screen shows is left out and counted."""
    truth = sampled(tmp_path / 'rank0.h.4242.tfr')
    flames = data_of(page_of(tfanalyze, tmp_path / 'page.html', 'report', tmp_path))['runs'][0]['flames']
    assert calls_of(flames) == truth and flames['left'] == 1 and flames['counted_us'] == sum(truth[key] for key in truth if len(key) == 1) + 0.5
    totals = json.loads(ask(tfanalyze, 'hotspots', tmp_path, '--format', 'json').out)['totals']
    assert flames['counted_us'] == totals['counted_us'] and flames['imports_us'] == totals['imports_us'] == 0


def test_the_pictures_of_memory(tfanalyze, shared_traces, tmp_path):
    """Each drawn moment is one of `memory --layout timeline`, and the peak is the highest of all."""
    path = shared_traces / QWEN
    memory = data_of(page_of(tfanalyze, tmp_path / 'page.html', 'report', path))['runs'][0]['memory']
    moments = {}
    for row in json.loads(ask(tfanalyze, 'memory', '--layout', 'timeline', '--format', 'json', path).out)['rows']:
        moments.setdefault((row['rank'], row['pid'], None if row['device'] == -1 else row['device']), []).append((row['time_us'], row['allocated_bytes'], row['reserved_bytes']))
    assert {(p['rank'], p['pid'], p['device']) for p in memory['pictures']} == set(moments) and memory['left_out'] == 0
    for picture in memory['pictures']:
        truth = moments[picture['rank'], picture['pid'], picture['device']]
        assert picture['moments'] == len({time for time, _, _ in truth}) or picture['moments'] == len(truth)
        assert (picture['peak_bytes'], picture['host']) == (max(held for _, held, _ in truth), picture['device'] is None)
        drawn = list(zip(picture['time_us'], picture['bytes'][0]))
        assert len(picture['bytes']) == 1 and set(drawn) <= {(time, held) for time, held, _ in truth} and (picture['peak_us'], picture['peak_bytes']) in drawn
        assert all(a[0] <= b[0] for a, b in zip(drawn, drawn[1:]))


def hostile(path):
    t, at = kineto.Trace(), 100
    for i, name in enumerate(HOSTILE):
        t.stage(name, at, 90).operator(name, at + 1, 50)
        t.launch(name, at + 10, i + 1, 5)
        at += 100
    return t.write(path)


def test_hostile_names_are_data(tfanalyze, tmp_path):
    """Names end no element: the page has the elements that every page has."""
    path = hostile(tmp_path / 'in.json')
    text = page_of(tfanalyze, tmp_path / 'page.html', 'report', path)
    parsed = check_policy(text)
    assert len([t for t in parsed.texts if t[0] == 'script']) == 2
    names = {row['stage'] for part in data_of(text)['runs'][0]['parts'] if part['id'] == 'stages' for row in part['answer']['rows']}
    assert {HOSTILE[0], HOSTILE[1], HOSTILE[2]} <= names
    check_policy(page_of(tfanalyze, tmp_path / 'two.html', 'diff', path, path))


def work_of(path):
    """{(rank, stream): (works, their time in us)} and the largest total of memory of a device, from the trace itself."""
    trace, streams, most = json.loads(gzip.decompress(path.read_bytes())), {}, 0
    rank = trace.get('distributedInfo', {}).get('rank', 0)
    for event in trace['traceEvents']:
        if event.get('cat') in ('kernel', 'gpu_memcpy', 'gpu_memset') and event.get('ph') == 'X':
            count, time = streams.get((rank, event['args']['stream']), (0, 0))
            streams[rank, event['args']['stream']] = count + 1, time + event['dur']
        if event.get('name') == '[memory]' and event['args'].get('Device Type') == 1:
            most = max(most, event['args']['Total Allocated'])
    return streams, most


@pytest.mark.parametrize('name', [RANKS, QWEN])
def test_the_timeline(tfanalyze, shared_traces, tmp_path, name):
    """Its rows of streams have the works of the trace, and the highest bar of memory is the highest total."""
    path = shared_traces / name
    timeline = data_of(page_of(tfanalyze, tmp_path / 'page.html', 'report', path))['runs'][0]['timeline']
    expected, most = {}, 0
    for trace in sorted(path.iterdir()) if path.is_dir() else [path]:
        streams, memory = work_of(trace)
        expected.update(streams)
        most = max(most, memory)
    shown = {(lane['rank'], int(lane['label'].split()[-1])): (sum(lane['count']), lane['busy_us']) for lane in timeline['lanes'] if lane['kind'] == 'work'}
    assert set(shown) <= set(expected) and len(shown) >= 1
    for key, (count, time) in shown.items():
        assert (count, time) == (expected[key][0], pytest.approx(expected[key][1])), key
    rows = [row for row in timeline['values'] if row['name'] == 'memory of device 0']
    assert not most and not rows or max(value or 0 for value in rows[0]['values']) == most


def test_the_timeline_is_thinned(tfanalyze, tmp_path):
    """Of 60,000 kernels no row has more boxes than a screen shows; the boxes have all of them, and a long one stays alone."""
    t = kineto.Trace()
    for i in range(60000):
        t.launch(f'kernel {i % 5}', 10 + 10 * i, i + 1, 5)
    t.launch('long', 10 + 10 * 60000, 60001, 9000)
    timeline = data_of(page_of(tfanalyze, tmp_path / 'page.html', 'report', t.write(tmp_path / 'in.json')))['runs'][0]['timeline']
    lanes = [lane for lane in timeline['lanes'] if lane['kind'] == 'work']
    assert lanes and all(len(lane['start']) <= 12000 for lane in lanes) and sum(sum(lane['count']) for lane in lanes) + timeline['left_events'] == 60001
    assert [(time, count) for lane in lanes for time, count in zip(lane['time'], lane['count']) if time >= 9_000_000] == [(9_000_000, 1)]
    for lane in lanes:
        assert all(step >= 0 for step in lane['start']) and len({len(lane[key]) for key in ('start', 'time', 'name', 'count')}) == 1


def test_a_large_page_is_packed(tfanalyze, shared_traces, tmp_path):
    t = kineto.Trace()
    for i in range(400):
        t.operator(f'operator {i} ' + 'y' * 1000, 100 + 10 * i, 5)
    text = page_of(tfanalyze, tmp_path / 'page.html', 'report', t.write(tmp_path / 'in.json'))
    assert 'id="packed"' in text and 'id="data"' not in text
    rows = next(part for part in data_of(text)['runs'][0]['parts'] if part['id'] == 'ops')['answer']['rows']
    assert len(rows) == 400


@pytest.mark.parametrize('words, said', [(['--stage', 'x'], 'of the filters it takes --rank and --pid'), (['--top', '3'], 'of the filters'), (['--format', 'json'], 'no --format'),
                                         (['--output', 'there'], '--output names other files')], ids=lambda v: str(v)[:12])
def test_refused(tfanalyze, tmp_path, words, said):
    path, page = kineto.Trace().stage('s', 0, 100).write(tmp_path / 'in.json'), tmp_path / 'page.html'
    assert said in ask(tfanalyze, 'report', path, '--html', page, *words, rc=2).err and not page.exists()


def test_nothing_to_draw(tfanalyze, tmp_path):
    path, page, timing = kineto.Trace().stage('s', 0, 100).write(tmp_path / 'in.json'), tmp_path / 'page.html', tmp_path / 'timing.json'
    timing.write_text(json.dumps({'stages': {'s': {'duration_ms': 1}}, 'total_stages_ms': 1}))
    ask(tfanalyze, 'report', tmp_path / 'missing.json', '--html', page, rc=1)
    ask(tfanalyze, 'report', path, '--rank', '7', '--html', page, rc=1)
    ask(tfanalyze, 'diff', path, tmp_path / 'missing.json', '--html', page, rc=1)
    assert 'timing.json' in ask(tfanalyze, 'diff', path, timing, '--html', page, rc=2).err
    assert 'no --by' in ask(tfanalyze, 'diff', path, path, '--by', 'op', '--html', page, rc=2).err
    ask(tfanalyze, 'report', path, '--html', tmp_path / 'no' / 'page.html', rc=1)
    assert not page.exists()


def test_the_answer_stays_on_stdout_without_a_page(tfanalyze, tmp_path):
    """A page is instead of all files and of the screen."""
    path = kineto.Trace().stage('s', 0, 100).write(tmp_path / 'in.json')
    result = ask(tfanalyze, 'report', path, '--html', tmp_path / 'page.html')
    assert result.out == '' and sorted(p.name for p in tmp_path.iterdir()) == ['in.json', 'page.html']
    assert re.search(r'^<!DOCTYPE html>', (tmp_path / 'page.html').read_text())
