"""kineto_parts - the events of a Kineto trace by stage: the expected content of report and export --stage.

Operators, calls and device work belong to a stage by the rules of analysis/help/stages.txt: 1 its own thread, 2 its
forward operator, 3 another thread (tests/kineto.py has the steps). Other events of a thread follow rules 1 and 3 at their
start. A device annotation goes with the annotation that has its External id, and an arrow's end with the event that
begins there. Every stage has all row descriptions.
"""

from collections import Counter, defaultdict
from types import SimpleNamespace

import kineto

ON_DEVICE = {'kernel', 'memcpy', 'memset'}


def row(event):
    return str(event.get('pid')), str(event.get('tid'))


def is_number(value):
    try:
        int(value)
    except (TypeError, ValueError):
        return False
    return True


def chains(found, points, forward):
    """{point: its stages}, by rules 1, 2 (if `forward`) and 3."""
    stages = found['annotation']
    answers = {p: s for p, s in kineto.opened(stages, points).items() if s}
    if forward:
        where = kineto.forward_points(found, points - answers.keys())
        there = kineto.opened(stages, set(where.values()))
        answers.update({p: there[q] for p, q in where.items() if there[q]})
    rest, threads = points - answers.keys(), {s.thread for s in stages}
    everywhere = kineto.opened(stages, {(thread, time) for _, time in rest for thread in threads})
    for point in rest:
        busy = [everywhere[t, point[1]] for t in threads if everywhere[t, point[1]]]
        answers[point] = busy[0] if len(busy) == 1 else []
    return answers


def pairs(document, found):
    """[(event, its class or None, its namespace in the tables or None)]"""
    queues = {kind: iter(rows) for kind, rows in found.items()}
    out = []
    for event in document['traceEvents']:
        kind = kineto.class_of(event)
        in_table = event.get('ph') == 'X' and kind and 'dur' in event
        out.append((event, kind if in_table else None, next(queues[kind]) if in_table else None))
    return out


def around(stages):
    """{id of a stage: the stages around it and itself}"""
    by_thread, answer = defaultdict(list), {}
    for place, s in enumerate(stages):
        by_thread[s.thread].append((s.start, -s.end, place, s))
    for rows in by_thread.values():
        before = []
        for _, _, _, s in sorted(rows, key=lambda r: r[:3]):
            answer[id(s)] = [o for o in before if o.end > s.start] + [s]
            before.append(s)
    return answer


def parts(document):
    """{stage: its events in file order, with all row descriptions}; '(run)' in a document without annotations."""
    belonging = of_stages(document)
    place = {id(e): i for i, e in enumerate(document['traceEvents'])}
    described = [e for e in document['traceEvents'] if e.get('ph') == 'M']
    return {stage: in_order(place, events + described) for stage, events in belonging.items()}


def in_order(place, events):
    return [e for _, e in sorted({place[id(e)]: e for e in events}.items())]


def of_stages(document):
    """{stage: its events}, without row descriptions."""
    found = kineto.tables(document)
    if not found['annotation']:
        return {kineto.RUN: [e for e in document['traceEvents'] if e.get('ph') != 'M']}
    events = pairs(document, found)
    works = {id(work): chain for work, chain, _ in kineto.belongings(document)}
    point = {id(e): (row(e), kineto.nanoseconds(e['ts'])) for e, _, _ in events if e.get('ph') != 'M' and 'ts' in e}
    calls = {point[id(e)] for e, kind, _ in events if kind in ('api', 'operator')}
    of_calls = chains(found, calls, True)
    of_others = chains(found, set(point.values()), False)
    nested = around(found['annotation'])
    by_external = {e['args']['External id']: s for e, kind, s in events
                   if kind == 'annotation' and 'External id' in e.get('args', {})}
    begins = {(kineto.nanoseconds(e['ts']), e['args'].get('correlation')): s
              for e, kind, s in events if kind in ON_DEVICE}
    out = defaultdict(list)
    for event, kind, s in events:
        if id(event) not in point or not (is_number(event['pid']) or event['ph'] in 'stf'):
            continue
        if kind in ON_DEVICE:
            chain = works[id(s)]
        elif kind == 'annotation':
            chain = nested[id(s)]
        elif event.get('cat') == 'gpu_user_annotation':
            shadow_of = by_external.get(event['args'].get('External id'))
            chain = nested[id(shadow_of)] if shadow_of else []
        elif point[id(event)] in of_calls and (kind or event['ph'] in 'stf'):
            chain = of_calls[point[id(event)]]
        elif event['ph'] in 'stf' and (point[id(event)][1], event['id']) in begins:
            chain = works[id(begins[point[id(event)][1], event['id']])]
        else:
            chain = of_others[point[id(event)]]
        for name in {kineto.collapsed(c.name) for c in chain}:
            out[name].append(event)
    return out


def kernels(document):
    """{stage: {kernel: (calls, device ns, host ns of the calls that launched it or None)}}, inclusive."""
    found = kineto.tables(document)
    launched = {id(work): call for work, call in kineto.launches(found)}
    share = Counter(id(c) for c in launched.values() if c)
    is_call = {id(c) for c in found['api']}
    out = defaultdict(lambda: defaultdict(lambda: SimpleNamespace(calls=0, device=0, host=None)))
    for work, chain, _ in kineto.belongings(document):
        if kineto.CLASS_OF[work.kind] != 'kernel':
            continue
        call = launched[id(work)]
        names = {kineto.collapsed(c.name) for c in chain} if found['annotation'] else {kineto.RUN}
        for name in names:
            k = out[name][work.name]
            k.calls += 1
            k.device += work.end - work.start
            if call and id(call) in is_call:
                k.host = (k.host or 0) + (call.end - call.start) / share[id(call)]
    return out
