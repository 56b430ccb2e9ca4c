"""test_page_browser - pages in Debian's chromium: every section and figure, sorting, search, keyboard, hostile names, and axe-core's rules."""

import gzip
import importlib.util
import json
import re
from pathlib import Path

import pytest
from selenium.webdriver.common.keys import Keys

from browser import DRIVER, Browser
from conftest import ROOT, clean_environment, execute
from pipelines import planted
from test_page import HOST, PAIR, QWEN, RANKS, SECRET, data_of, hostile, page_of, sampled

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group('browser')]
AMD = 'hta/amd_trace'
SECTIONS = ['verdict', 'findings', 'stages', 'slowest', 'timeline', 'operators', 'flames', 'lines', 'devices', 'memory', 'collectives', 'files', 'roofline', 'startup', 'recording']
# The table of each part whose rows the page shows as they are.
TABLES = {'ops': 'ops', 'breakdown': 'kernels', 'roofline': 'roof-table', 'hotspots': 'hotspots', 'timeline': 'device-table', 'comm': 'comm', 'stragglers': 'stragglers', 'io': 'io', 'startup': 'startup-table',
          'slowest': 'slowest-table', 'memory': 'memory-table', 'clocks': 'clocks', 'info': 'info'}


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
    if not Path(DRIVER).exists():
        pytest.skip('chromium is not installed')
    directory = tmp_path_factory.mktemp('chromium')
    browser = Browser(directory / 'profile', {**clean_environment(), 'HOME': str(directory)})
    yield browser
    browser.close()


def draw(browser, tfanalyze, path, *words):
    """Writes a page and opens it; returns its data."""
    text = page_of(tfanalyze, path, *words)
    browser.open(path)
    assert browser.console() == []
    return data_of(text)


def check_rows(shown, rows):
    assert len(shown) == len(rows)
    for cells, row in zip(shown, rows):
        assert {key: row.get(key) for key in cells} == cells


def operators(ops, roofline):
    """The rows of `ops` with what the page adds: their shares, and the types of the rows of `roofline` with the same inputs."""
    types = {}
    for row in roofline:
        if row['types'] and row['types'] not in types.setdefault((row['name'], row['shapes']), []):
            types[row['name'], row['shapes']].append(row['types'])
    rows, totals = [], ops['totals']
    for row in ops['rows']:
        shares = {f'{part}_share_pct': pytest.approx(100 * row[key] / totals[key]) if row[key] is not None and totals[key] else None
                  for part, key in (('host', 'self_cpu_us'), ('device', 'self_device_us'))}
        rows.append({**row, **shares, 'types': ' | '.join(types.get((row['name'], row['shapes']), [])) or None, 'stack': next((frame for frame in row['stack'] if re.search(r'\(\d+\): ', frame)), None)})
    return rows


def sections(browser):
    return browser.run('return [...document.querySelectorAll("main > section")].map((one) => one.id)')


def check_stages(browser, rows):
    """A row of the tree has the sum over all ranks, or nothing where one of them is unknown."""
    done = {}
    for row in rows:
        done.setdefault((row['stage'], row['parent']), []).append(row['done_us'])
    shown = browser.whole('stage-table')
    for row in shown:
        sums = [sum(times) for (stage, _), times in done.items() if stage == row['stage'] and None not in times]
        assert row.get('done_us') is None or any(row['done_us'] == pytest.approx(one) for one in sums)
    assert len(shown) == len(done)


def check_memory(browser, pictures):
    assert browser.run('return [...document.querySelectorAll("#memory polygon")].length') == sum(len(picture['bytes']) for picture in pictures)
    for i, picture in enumerate(pictures):
        total = [{'peak_bytes': picture['peak_bytes'], 'largest_bytes': picture['peak_bytes'], 'since_us': picture['peak_us'], 'last_bytes': sum(picture['last'])}]
        bands = [dict(zip(('peak_bytes', 'largest_bytes', 'since_us', 'last_bytes'), of)) for of in zip(*(picture[key] for key in ('at_peak', 'largest', 'since_us', 'last')))]
        rows = [{key: row[key] for key in bands[0]} for row in browser.whole(f'memory-{i}')]
        assert rows == bands[::-1] + total[:len(bands) > 1]


def check_figures(browser, data):
    """Every section stands, and every figure of its tables is the one of the commands."""
    parts = {part['id']: part for part in data['runs'][0]['parts']}
    assert sections(browser) == SECTIONS
    roofline = parts['roofline']['answer']
    peaks = roofline['totals']['peaks'] if any(row['flops'] and row['bytes'] and row['achieved_tflops'] for row in roofline['rows']) else []
    assert browser.run('return document.querySelectorAll("#roofline .roof").length') == sum(len({peak[key] for key in peak if key.endswith('tflops')} - {0}) for peak in peaks)
    for part, table in TABLES.items():
        rows = parts[part]['answer']['rows'] if parts[part]['answer'] else []
        check_rows(browser.whole(table), rows if part != 'ops' else operators(parts['ops']['answer'], parts['roofline']['answer']['rows']))
    ranks = {row['rank'] for row in parts['budget']['answer']['rows']}
    leaves = {}
    for row in parts['budget']['answer']['rows']:
        leaves.setdefault(row['leaf'], []).append(row['us'])
    shown = {row['leaf']: row for row in browser.whole('budget')}
    assert set(shown) == set(leaves)
    for leaf, times in leaves.items():
        assert shown[leaf]['us'] == pytest.approx(sum(times) / len(ranks))
    check_memory(browser, data['runs'][0]['memory']['pictures'] if data['runs'][0]['memory'] else [])
    gains = browser.run('return [...document.querySelectorAll(".finding")].map((one) => [one.dataset.id, JSON.parse(one.dataset.value)])')
    assert gains == [[row['id'], row['headroom_us']] for row in parts['advise']['answer']['rows']]
    check_stages(browser, parts['stages']['answer']['rows'])
    return parts


@pytest.mark.parametrize('name', [RANKS, HOST, QWEN, AMD])
def test_figures_of_a_run(browser, tfanalyze, shared_traces, tmp_path, name):
    parts = check_figures(browser, draw(browser, tfanalyze, tmp_path / 'page.html', 'report', shared_traces / name))
    assert bool(parts['roofline']['answer']['totals']['peaks']) == (name == QWEN)


@pytest.mark.torch
def test_figures_of_a_planted_fault(browser, tfanalyze, lib, python, tmp_path):
    """A run of ours: the fault is the first finding, and one click opens what shows it."""
    result, run = planted.record(python, lib, [planted.program('faults'), 'python-loop', 'bad'], tmp_path / 'run', planted.ON_CPU['python-loop'])
    assert result.rc == 0, result.err
    check_figures(browser, draw(browser, tfanalyze, tmp_path / 'page.html', 'report', run))
    first = browser.driver.find_element('css selector', '.finding')
    assert first.get_attribute('data-id') == 'python-loop'
    first.find_element('css selector', 'summary').send_keys(Keys.ENTER)
    browser.until('document.querySelector(".finding").open')


def ranks_of(directory, template, count):
    """Writes traces of so many ranks, each a real one with another rank."""
    traces = [json.loads(gzip.decompress(path.read_bytes())) for path in sorted(template.glob('*.json.gz'))]
    directory.mkdir()
    for rank in range(count):
        trace = traces[rank % len(traces)]
        trace['distributedInfo'] |= {'rank': rank, 'world_size': count}
        (directory / f'rank{rank}.json.gz').write_bytes(gzip.compress(json.dumps(trace).encode(), 1))
    return directory


@pytest.mark.soak
def test_figures_of_1024_ranks(browser, tfanalyze, shared_traces, tmp_path):
    run = ranks_of(tmp_path / 'ranks', shared_traces / 'dlrm8', 1024)
    data = draw(browser, tfanalyze, tmp_path / 'page.html', 'report', run)
    assert (tmp_path / 'page.html').stat().st_size < 3_000_000
    parts = check_figures(browser, data)
    assert len({row['rank'] for row in parts['budget']['answer']['rows']}) == 1024


@pytest.mark.soak
def test_figures_of_a_large_trace(browser, tfanalyze, python, shared_traces, tmp_path):
    """Twenty copies of the largest trace in one: 4.3 million events."""
    copy = 'import sys; sys.path.insert(0, "scripts/bench"); import traces; traces.make_long(*sys.argv[1:], 20, 1)'
    made = execute([python, '-c', copy, shared_traces / 'hta/df_index_resolver/df_index_resolver.json.gz', tmp_path / 'large.json.gz'], clean_environment(), ROOT, 240)
    assert made.rc == 0, made.err
    data = draw(browser, tfanalyze, tmp_path / 'page.html', 'report', tmp_path / 'large.json.gz')
    assert (tmp_path / 'page.html').stat().st_size < 3_000_000
    check_figures(browser, data)


def test_figures_of_two_runs(browser, tfanalyze, shared_traces, tmp_path):
    a, b = sorted((shared_traces / PAIR).iterdir())
    data = draw(browser, tfanalyze, tmp_path / 'page.html', 'diff', a, b)
    assert sections(browser) == ['verdict', 'findings', 'stages', 'operators', 'device-work', 'recording']
    parts = {part['id']: part['answer']['rows'] for part in data['parts']}
    check_rows(browser.whole('ops'), parts['op'])
    check_rows(browser.whole('kernels'), parts['kernel'])
    assert {row['stage']: row['change_us'] for row in browser.whole('stage-table')} == {row['name']: row['change_us'] for row in parts['stage']}
    budgets = [{row['leaf']: row['us'] for row in part['answer']['rows']} for run in data['runs'] for part in run['parts'] if part['id'] == 'budget']
    shown = {row['leaf']: row for row in browser.whole('budget')}
    assert set(shown) == {*budgets[0], *budgets[1]}
    for leaf, row in shown.items():
        assert [row['a_us'], row['b_us']] == pytest.approx([budget.get(leaf, 0) for budget in budgets])
    advice = [{row['id']: row for row in part['answer']['rows']} for run in data['runs'] for part in run['parts'] if part['id'] == 'advise']
    gone, = browser.whole('finding-table')
    assert (gone['id'], gone['state'], gone['predicted_us']) == ('launch-bound', 'gone', advice[0]['launch-bound']['headroom_us']) and not advice[1]
    assert gone['measured_us'] == pytest.approx(budgets[0]['idle/launching'] - budgets[1]['idle/launching'])
    walls = [sum(budget.values()) for budget in budgets]
    assert browser.run('return JSON.parse(document.getElementById("gain").dataset.value)') == pytest.approx(walls[0] - walls[1], abs=1e-6)


def test_a_finding_that_comes_or_stays(browser, tfanalyze, shared_traces, tmp_path):
    a, b = sorted((shared_traces / PAIR).iterdir())
    draw(browser, tfanalyze, tmp_path / 'back.html', 'diff', b, a)
    row, = browser.whole('finding-table')
    assert (row['state'], row.get('predicted_us'), row.get('measured_us')) == ('new', None, None) and row['headroom_b_us'] == 160
    draw(browser, tfanalyze, tmp_path / 'same.html', 'diff', a, a)
    row, = browser.whole('finding-table')
    assert (row['state'], row['predicted_us'], row['measured_us'], row['headroom_b_us']) == ('stays', 160, 0, 160)


def test_sorting_and_search(browser, tfanalyze, shared_traces, tmp_path):
    """By keyboard alone: the heads of columns are buttons, and the search is an input."""
    data = draw(browser, tfanalyze, tmp_path / 'page.html', 'report', shared_traces / RANKS)
    rows = next(part for part in data['runs'][0]['parts'] if part['id'] == 'ops')['answer']['rows']
    browser.whole('ops')
    head = browser.driver.find_element('css selector', '#ops button[data-sort="calls"]')
    head.send_keys(Keys.ENTER)
    assert [row['calls'] for row in browser.rows('ops')] == sorted((row['calls'] for row in rows), reverse=True)
    assert browser.run('return document.querySelector("#ops th[data-key=calls]").getAttribute("aria-sort")') == 'descending'
    head.send_keys(Keys.ENTER)
    assert [row['calls'] for row in browser.rows('ops')] == sorted(row['calls'] for row in rows)
    browser.driver.find_element('css selector', 'input[aria-label="search ops"]').send_keys('addmm')
    found = [row['name'] for row in browser.rows('ops')]
    assert len(found) == sum('addmm' in json.dumps([row['name'], row['shapes']]).lower() for row in rows) > 0
    finding = browser.driver.find_element('css selector', '.finding summary')
    finding.send_keys(Keys.ENTER)
    browser.until('document.querySelector(".finding").open')
    links = browser.run('return [...document.querySelectorAll(".finding a")].map((one) => [one.hash.slice(1), one.textContent])')
    assert links and all(place in SECTIONS and words.startswith('tfanalyze ') for place, words in links)


CANVAS = 'document.getElementById("timeline-canvas").dataset'


def test_the_timeline_moves(browser, tfanalyze, shared_traces, tmp_path):
    """By keys, by search and by two fingers; the table has its rows."""
    timeline = draw(browser, tfanalyze, tmp_path / 'page.html', 'report', shared_traces / RANKS)['runs'][0]['timeline']
    browser.until(f'{CANVAS}.to === "1"')
    canvas = browser.driver.find_element('id', 'timeline-canvas')
    canvas.send_keys('+')
    browser.until(f'{CANVAS}.from === "0.25" && {CANVAS}.to === "0.75"')
    canvas.send_keys(Keys.ARROW_RIGHT)
    browser.until(f'Math.abs({CANVAS}.from - 0.3) < 1e-9')
    canvas.send_keys('0')
    browser.until(f'{CANVAS}.from === "0" && {CANVAS}.to === "1"')
    browser.run('document.getElementById("timeline-canvas").scrollIntoView({block: "center"})')
    x, y, width = browser.run('const box = document.getElementById("timeline-canvas").getBoundingClientRect(); return [box.left, box.top + 30, box.width]')
    for kind, apart in (('touchStart', 0.1), ('touchMove', 0.15), ('touchMove', 0.2)):
        browser.devtools('Input.dispatchTouchEvent', type=kind, touchPoints=[{'x': x + width * (0.6 + sign * apart), 'y': y, 'id': i} for i, sign in enumerate((-1, 1))])
    browser.devtools('Input.dispatchTouchEvent', type='touchEnd', touchPoints=[])
    browser.until(f'{CANVAS}.to - {CANVAS}.from < 0.9')
    browser.driver.find_element('css selector', 'input[aria-label="search the timeline"]').send_keys('nccl')
    names = {i for i, name in enumerate(timeline['names']) if 'nccl' in name.lower()}
    assert int(browser.run(f'return {CANVAS}.found')) == sum(name in names for lane in timeline['lanes'] for name in lane['name']) > 0
    browser.driver.find_element('css selector', '#timeline details summary').send_keys(Keys.ENTER)
    rows = browser.whole('timeline-table')
    assert [row['busy_us'] for row in rows] == [lane['busy_us'] for lane in timeline['lanes']] + [None] * len(timeline['values'])
    assert [row['events'] for row in rows][:len(timeline['lanes'])] == [sum(lane['count']) for lane in timeline['lanes']]
    assert 'is drawn together' in browser.run('return document.getElementById("thinned").textContent')


def test_the_flame_graph_moves(browser, tfanalyze, tmp_path):
    """By keys and by search; its table has each call with its time."""
    truth = sampled(tmp_path / 'rank0.h.4242.tfr')
    draw(browser, tfanalyze, tmp_path / 'page.html', 'report', tmp_path)
    first = browser.driver.find_element('css selector', '#flame button')
    first.send_keys(Keys.ARROW_DOWN)
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    stages = sorted((key[0] for key in truth if len(key) == 1), key=lambda name: -truth[name,])
    assert browser.run('return document.getElementById("flame").dataset.at') == stages[1]
    drawn = browser.run('return [...document.querySelectorAll("#flame button")].map((one) => [one.title, one.style.width])')
    assert [width for _, width in drawn[:3]] == ['100%', '100%', '100%'] and len(drawn) == 2 + sum(key[0] == stages[1] for key in truth) - 1
    browser.driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert browser.run('return document.getElementById("flame").dataset.at') == 'all stages'
    browser.driver.find_element('css selector', 'input[aria-label="search the flame graph"]').send_keys('mul')
    assert browser.run('return document.querySelectorAll("#flame .found").length') == sum('mul' in key[-1] for key in truth)
    browser.driver.find_element('css selector', '#flames details summary').send_keys(Keys.ENTER)
    rows = [(row['depth'], row['name'], row['total_us']) for row in browser.whole('flame-table')]
    assert sorted(rows[1:]) == sorted((len(key), key[-1], time) for key, time in truth.items()) and SECRET in rows[1][1] + rows[5][1]


def test_hostile_names_are_text(browser, tfanalyze, tmp_path):
    """Nothing of a name runs, and the policy refuses a script and a style that are put into the page."""
    path = hostile(tmp_path / 'in.json')
    for words in (['report', path], ['diff', path, path]):
        draw(browser, tfanalyze, tmp_path / f'{words[0]}.html', *words)
        assert browser.run('return [window.bad === undefined, document.images.length, document.scripts.length]') == [True, 0, 2]
        assert '</script><script>window.bad = 1</script>' in [row['stage'] for row in browser.whole('stage-table')]
    browser.run('''window.refused = []; document.addEventListener('securitypolicyviolation', (event) => window.refused.push(event.effectiveDirective));
        const script = document.createElement('script'); script.textContent = 'window.bad = 1'; document.body.append(script);
        const image = document.createElement('img'); image.src = 'file:///x.png'; document.body.append(image);''')
    browser.until('window.refused.length === 2')
    assert sorted(browser.run('return window.refused')) == ['img-src', 'script-src-elem'] and browser.run('return window.bad === undefined')
    browser.console()


@pytest.mark.parametrize('scheme', ['light', 'dark'])
@pytest.mark.parametrize('kind', ['run', 'diff'])
def test_everybody_can_use_it(browser, tfanalyze, shared_traces, tmp_path, kind, scheme):
    """axe-core finds nothing, in both colour schemes; 400 px wide the page itself is not wider than the screen."""
    words = ['report', shared_traces / RANKS] if kind == 'run' else ['diff', *sorted((shared_traces / PAIR).iterdir())]
    browser.devtools('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': scheme}])
    draw(browser, tfanalyze, tmp_path / 'page.html', *words)
    browser.run('document.querySelectorAll("details").forEach((one) => { one.open = true; })')
    browser.run(Path(importlib.util.find_spec('axe_core_python').origin).with_name('axe.min.js').read_text())
    found = browser.driver.execute_async_script('const done = arguments[0]; axe.run().then((found) => done(found.violations.map((one) => [one.id, one.nodes.map((node) => node.html.slice(0, 120))])));')
    assert found == []
    browser.devtools('Emulation.setDeviceMetricsOverride', width=400, height=800, deviceScaleFactor=1, mobile=True)
    width = browser.run('return document.documentElement.scrollWidth')
    browser.devtools('Emulation.clearDeviceMetricsOverride')
    assert width <= 400
