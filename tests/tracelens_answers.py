"""tracelens_answers - asks TraceLens itself for the collectives of the jobs in test_comm.py; run by hand.

    tracelens_answers.py CHECKOUT TRACES OUTPUT

CHECKOUT is a clone of AMD-AGI/TraceLens, TRACES the folder of public traces. OUTPUT gets the figures and the commit
they come from. The test suite compares `comm --rules tracelens` with that file and needs no code of TraceLens.
"""

import json
import logging
import math
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import comm_traces

KEPT = 40  # rows of a table
IN_BOTH = ['collective_id', 'Collective name', 'Process Group Name', 'skew in start time', 'skew in end time']
MET = [*IN_BOTH, 'Full msg size (MB)', 'comm_latency', 'algo bw (GB/s)', 'bus bw (GB/s)', 'wait']
UNEVEN = [*IN_BOTH, 'total data communicated (MB)', 'wall_time (us)', 'throughput (GB/s)']


def jobs(traces, work):
    """{name of a case: its traces}."""
    nccl = traces / 'hta/nccl_parser_config/nccl_data.json.gz'
    simple = traces / 'hta/df_index_resolver/df_index_resolver.json.gz'
    unknown = traces / 'hta/trace_filter'
    places = {name: work / name for name in ('derived', 'simple', 'job')}
    for place in places.values():
        place.mkdir()
    return {'nccl_parser_config': [nccl], 'trace_filter': sorted(unknown.iterdir()), 'df_index_resolver': [simple],
            'derived': comm_traces.derived(nccl, places['derived']),
            'simple': comm_traces.derived(simple, places['simple'], 2), 'job': comm_traces.job(places['job'])[0]}


def plain(value):
    value = value.item() if hasattr(value, 'item') else value
    return None if isinstance(value, float) and math.isnan(value) else value


def table(frame, keys):
    rows = []
    for row in frame.to_dict('records') if frame is not None else []:
        waits = {k.split('_')[1]: plain(v) for k, v in row.items() if k.startswith('rank_') and k.endswith('_wait_time')}
        rows.append({k: {r: w for r, w in waits.items() if w is not None} if k == 'wait' else plain(row[k]) for k in keys})
    rows.sort(key=lambda row: row['collective_id'])
    return {'rows': len(rows), 'first': rows[:KEPT]}


def main():
    checkout, traces, output = map(Path, sys.argv[1:])
    for name in ('TraceLens', 'TraceLens.NcclAnalyser'):  # the package itself imports more than this needs
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = [str(checkout / name.replace('.', '/'))]
    from TraceLens.NcclAnalyser.nccl_analyser import NcclAnalyser
    logging.disable(logging.CRITICAL)
    commit = subprocess.run(['git', '-C', checkout, 'rev-parse', 'HEAD'], capture_output=True, text=True)
    figures = {'tool': 'AMD-AGI/TraceLens', 'commit': commit.stdout.strip(), 'jobs': {}}
    with tempfile.TemporaryDirectory() as work:
        for name, files in jobs(traces, Path(work)).items():
            analyser = NcclAnalyser([str(f) for f in files], len(files))
            met = analyser.build_df_nccl_implicit_sync_cat(detailed=True)
            figures['jobs'][name] = {'met': table(met if len(met) else None, MET),
                                     'uneven': table(analyser.build_df_nccl_all2allv(detailed=True), UNEVEN)}
    text = json.dumps(figures).replace('{"collective_id"', '\n  {"collective_id"').replace('"jobs": {', '"jobs": {\n ')
    output.write_text(text.replace(']}}, ', ']}},\n ') + '\n')


if __name__ == '__main__':
    main()
