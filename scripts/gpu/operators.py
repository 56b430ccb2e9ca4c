"""operators - the part of gpu-check about torch's operators: pipelines of the tests on the GPU, under both profilers at once.

The part compares, within one run, each thread's operators with shapes and nesting, the operator that launched each kernel,
copy and set, and the table that torch.profiler printed with the one that tfanalyze prints of torch.profiler's trace. The
traces and printed tables go to the output as pairs for the analyser's tests.
"""

import collections
import gzip
import itertools
import json
import os
import re
import shutil

import traces
from common import EVERYTHING, PLAIN, ROOT, environment, tfanalyze_text, trace_figures

PIPELINES = {'train': ('training.py', []), 'diffuse': ('diffusion.py', [])}
WORK = ('kernel', 'gpu_memcpy', 'gpu_memset')
AGREES = 20  # equal operators in a row that align two sequences


def load(path):
    with (gzip.open if path.endswith('.gz') else open)(path, 'rt', encoding='utf-8', errors='replace') as file:
        return [e for e in json.load(file)['traceEvents'] if e.get('ph') == 'X']


def nested(events):
    """Returns [(name, shapes, depth)] of one thread's operators in the order of their start."""
    ends, rows = [], []
    for e in sorted(events, key=lambda e: (e['ts'], -e['dur'])):
        while ends and ends[-1] <= e['ts']:
            ends.pop()
        rows.append((e['name'], json.dumps(e['args'].get('Input Dims', [])), len(ends)))
        ends.append(e['ts'] + e['dur'])
    return rows


def by_thread(events):
    threads = collections.defaultdict(list)
    for e in events:
        if e.get('cat') == 'cpu_op':
            threads[str(e['tid'])].append(e)
    return {tid: nested(rows) for tid, rows in threads.items()}


def meet(ours, theirs):
    """Returns the common parts of two sequences, or None if they agree nowhere. A profile begins and ends in the middle of
    a run; our trace begins with the first stage or the hundredth operator, which may be inside the profile."""
    size = min(AGREES, len(theirs))
    for late in range(max(1, min(101, len(theirs) - size + 1))):
        for at in range(len(ours) - size + 1):
            if ours[at:at + size] == theirs[late:late + size]:
                mine = ours[at:at + len(theirs) - late]
                return mine, theirs[len(theirs) - len(mine):]
    return None


def compare_operators(what, ours, theirs):
    wrong, compared, left = [], 0, 0
    for tid, rows in by_thread(theirs).items():
        both = meet(by_thread(ours).get(tid, []), rows)
        if both is None:
            wrong.append({'what': what, 'thread': tid, 'error': 'no such operators in our trace', 'theirs': len(rows)})
            continue
        compared, left = compared + len(both[1]), left + len(rows) - len(both[1])
        if both[0] != both[1]:
            at = next((i for i, (a, b) in enumerate(zip(*both)) if a != b), min(map(len, both)))
            wrong.append({'what': what, 'thread': tid, 'at': at, 'ours': both[0][at:at + 1], 'theirs': both[1][at:at + 1],
                          'counts': list(map(len, both))})
    return {'compared': compared, 'before_ours_began': left}, wrong


def launched_by(events, window=None):
    """Counts (operator, category, kernel): the innermost operator of the launching call, by External id."""
    operators = {e['args']['External id']: e['name'] for e in events
                 if e.get('cat') == 'cpu_op' and 'External id' in e['args']}
    work = [e for e in events if e.get('cat') in WORK and (window is None or e['args'].get('correlation') in window)]
    return collections.Counter((operators.get(e['args'].get('External id'), '(none)'), e['cat'],
                                e['name'] if e['cat'] == 'kernel' else '') for e in work)


def compare_links(what, ours, theirs):
    """Compares the operators of the work that both traces have, by correlation id; a profile covers only a part of a run."""
    window = {e['args'].get('correlation') for e in theirs if e.get('cat') in WORK}
    a, b = launched_by(ours, window), launched_by(theirs)
    different = [{'what': what, 'operator': k[0], 'category': k[1], 'name': k[2][:300], 'ours': a[k], 'theirs': b[k]}
                 for k in sorted(set(a) | set(b)) if a[k] != b[k]]
    figures = {'ours': sum(a.values()), 'theirs': sum(b.values()), 'links': len(b),
               'of_no_operator': sum(n for k, n in b.items() if k[0] == '(none)')}
    return figures, traces.listed(different, what)


def same_line(ours, theirs):
    """True if two lines differ at most in the last digit: torch rounds times before it divides them, by a start that the
    trace lacks."""
    pairs = list(itertools.zip_longest(ours.split(), theirs.split(), fillvalue=''))
    numbers = [(re.fullmatch(r'(\d+\.\d{3})(us|ms|s)', a), re.fullmatch(r'(\d+\.\d{3})(us|ms|s)', b)) for a, b in pairs]
    return all(a == b or (x and y and x[2] == y[2] and abs(float(x[1]) - float(y[1])) < 0.0011)
               for (a, b), (x, y) in zip(pairs, numbers))


def compare_table(what, profile, table):
    """Compares torch's printed table with ours of the trace that torch wrote beside it."""
    text, error = tfanalyze_text('ops', '--group-by', 'name,shapes', '--row-limit', '-1', profile)
    with open(table) as file:
        theirs = file.read().strip().splitlines()
    ours = text.strip().splitlines()
    different = [{'what': what, 'ours': a[:400], 'theirs': b[:400]} for a, b in zip(ours, theirs) if not same_line(a, b)]
    if len(ours) != len(theirs):
        different.append({'what': what, 'lines': [len(ours), len(theirs)], 'error': error})
    return {'lines': len(theirs), 'lines_that_differ': len(different)}, traces.listed(different, what)


def missing_package(run, name):
    packages = ['diffusers', 'transformers'] if name == 'diffuse' else ['torch']
    code = f'import importlib.util as u; print(*[p for p in {packages} if not u.find_spec(p)])'
    return run.execute([run.python, '-c', code], environment(PLAIN), 60).out.strip()


def profiled(part, directory, out):
    """Runs the pipeline under both profilers and compares them. With the simulated GPU it runs on the CPU alone."""
    run, (script, arguments) = part.run, PIPELINES[part.name]
    profile, table, chrome = (f'{out}/{f}' for f in ('profile.json', 'table.txt', 'chrome.json'))
    more = {'PROFILE': profile, 'TABLE': table, 'DEVICE': 'cpu' if run.simulated else 'cuda', 'TFI_STAGES': 'auto',
            'TORCHINDUCTOR_CACHE_DIR': f'{run.work}/inductor', 'TRITON_CACHE_DIR': f'{run.work}/triton',
            **({'TORCHDYNAMO_DISABLE': '1'} if run.simulated else {})}
    run.directory(f'{part.name}-run'), run.directory(f'{part.name}-out')
    result = run.execute([run.python, f'{ROOT}/tests/pipelines/{script}', *arguments],
                         environment(EVERYTHING, directory, more), 240)
    figures, wrong = {'exit': result.rc, 'seconds': round(result.seconds, 1), 'said': result.said[:20],
                      'trace': trace_figures(directory)}, []
    if result.rc or not os.path.exists(table):
        return figures, [{'what': f'{part.name}: failed', 'exit': result.rc, 'error': result.err[-800:]}]
    figures['export_said'] = tfanalyze_text('export', 'chrome', directory, '--output', chrome)[1][-500:]
    main, theirs = trace_of_main(profile), load(profile)
    ours = [e for e in load(chrome) if str(e['pid']) == main or e.get('cat') in WORK]
    if not run.simulated and not any(e.get('cat') in WORK for e in theirs):
        wrong.append({'what': f'{part.name}: the trace has no work of the device'})
    for key, (found, more) in {'operators': compare_operators(f'{part.name}: operators', ours, theirs),
                               'links': compare_links(f'{part.name}: launched by', ours, theirs),
                               'table': compare_table(f'{part.name}: printed table', profile, table)}.items():
        figures[key] = found
        wrong += more
    return figures, wrong


def profiled_part(part):
    """Checks a pipeline of the tests: its operators, the operator of each kernel, and the table that torch prints."""
    missing = part.way('packages', lambda: missing_package(part.run, part.name))
    if missing or part.run.simulated and part.name == 'diffuse':
        part.not_run.append(f'all of it: no {missing}' if missing else 'all of it: simulated: there is no cuBLAS')
        return
    directory, out = (f'{part.run.work}/{part.name}-{what}' for what in ('run', 'out'))
    profile, table = f'{out}/profile.json', f'{out}/table.txt'
    found, wrong = part.way('both', lambda: profiled(part, directory, out), [directory])
    part.figures.update(found)
    part.disagreements += wrong
    if part.run.simulated:
        part.not_run.append('simulated: kernels and their operators; without cuBLAS the pipeline ran on the CPU')
    if os.path.exists(profile) and os.path.exists(table):
        with open(profile, 'rb') as source, gzip.open(profile + '.gz', 'wb') as target:
            shutil.copyfileobj(source, target)
        part.files.update({f'pairs/{part.name}.json.gz': profile + '.gz', f'pairs/{part.name}.table.txt': table})


def trace_of_main(profile):
    """Returns the id of the profiled process as text: the one with most of the operators."""
    pids = collections.Counter(str(e['pid']) for e in load(profile) if e.get('cat') == 'cpu_op')
    return pids.most_common(1)[0][0]


PARTS = {name: profiled_part for name in PIPELINES}
