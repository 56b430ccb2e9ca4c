"""test_validator - what `info` says of a trace's health agrees with torch's own validator of traces, on real ones and on faults.

torch.profiler._trace_validator is loaded from its file, without torch.
"""

import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from conftest import TRACES
from kineto import Trace
from test_device_export import events, pipeline
from test_device_records import US, Trace as Recording

RULES = {'_check_stream_wait_corr_id_populated': 'waits_without_record', '_check_stream_wait_corr_id_in_past': 'waits_before_record',
         '_check_stream_sync_overlap': 'syncs_inside_kernels', '_check_nccl_metadata': 'collectives_undescribed',
         '_check_backward_seq_id_uniqueness': 'sequences_shared', '_check_gpu_kernel_causality': 'before_launch'}
REAL = sorted(str(p.relative_to(TRACES)) for folder in ('hta', 'tracelens', 'kineto_tb', 'planted', 'replay', 'dlrm8')
              for p in (TRACES / folder).rglob('*') if p.name.endswith(('.json', '.json.gz')) and 'execution_details' not in p.name)


@pytest.fixture(scope='module')
def validate():
    """path -> the number of violations by rule."""
    package = importlib.util.find_spec('torch')
    path = Path(package.origin).parent / 'profiler' / '_trace_validator.py' if package else None
    if not path or not path.exists():
        pytest.skip('this torch has no validator of traces')
    spec = importlib.util.spec_from_file_location('trace_validator', path)
    module = sys.modules['trace_validator'] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda path: Counter(v.rule_name for v in module.validate_trace(str(path))[1])


def compare(analyze, validate, path):
    found = {d['doubt']: d['count'] for row in analyze('info', path, rc=None)['rows'] for d in row['health']}
    theirs = validate(path)
    for rule, doubt in RULES.items():
        if rule == '_check_gpu_kernel_causality':  # torch looks at external ids, and at one kernel of each
            assert not theirs[rule] or found.get(doubt), path
        else:
            assert found.get(doubt, 0) == theirs[rule], (path, rule)
    return theirs


@pytest.mark.parametrize('part', range(4))
def test_real_traces(analyze, validate, part):
    if not REAL:
        pytest.skip('the shared traces are not here')
    for name in REAL[part::4]:
        compare(analyze, validate, TRACES / name)


def sync(t, kind, ts, dur, stream=7, record=None):
    args = {'cuda_sync_kind': kind, 'device': 0, 'stream': stream, 'correlation': 900 + ts}
    return t.add('cuda_sync', kind, ts, dur, pid=0, tid=stream,
                 args={**args, **({} if record is None else {'wait_on_cuda_event_record_corr_id': record})})


def faulty():
    t = Trace()
    t.call(10, 1, name='cudaEventRecord').call(50, 2, name='cudaEventRecordWithFlags').call(60, 3).kernel('k', 70, 30, 3, 3)
    sync(sync(sync(sync(t, 'Stream Wait Event', 20, 1, record=1), 'Stream Wait Event', 30, 1, record=2), 'Stream Wait Event', 40, 1, record=99),
         'Stream Wait Event', 45, 1, record=-1)
    sync(sync(sync(t, 'Event Sync', 46, 1), 'Stream Sync', 80, 30), 'Stream Sync', 80, 30, stream=8)
    sync(t, 'Context Sync', 81, 5)
    whole = {'Collective name': 'allreduce', 'dtype': 'Float', 'In msg nelems': 1, 'Out msg nelems': 1, 'Group size': 2}
    t.add('cpu_op', 'record_param_comms', 200, 5, args=whole).add('cpu_op', 'record_param_comms', 210, 5, args={**whole, 'dtype': 'Float'})
    whole.pop('dtype')
    t.add('cpu_op', 'record_param_comms', 220, 5, args=whole).add('cpu_op', 'record_param_comms', 230, 5)
    for i, (name, number) in enumerate([('MulBackward0', 5), ('MulBackward0', 5), ('AddBackward0', 5), ('AddBackward0', 6)]):
        t.add('cpu_op', f'autograd::engine::evaluate_function: {name}', 300 + 10 * i, 5, args={'Sequence number': number})
    return t.call(500, 8).kernel('early', 490, 5, 8, 8).add('cuda_runtime', 'cudaLaunchKernel', 500, 2, args={'External id': 8, 'correlation': 8})


def test_each_rule(analyze, validate, tmp_path):
    theirs = compare(analyze, validate, faulty().write(tmp_path / 'faulty.json'))
    assert set(theirs) == set(RULES)


def test_our_exports_pass(analyze, validate, tmp_path):
    trace = pipeline(tmp_path / 'rank2.elsewhere.4242.tfr')
    out = tmp_path / 'export.json'
    analyze('export', 'chrome', trace, '--output', out, format=None)
    assert not validate(out)


def waits(path, prefix='cuda'):
    """A stream and the host wait for an event that was recorded twice, and a stream for one that never was."""
    t = Recording(rank=0)
    t.device(0, 'Simulated GPU 0', simulated=1)
    for i in range(2):
        t.call(f'{prefix}EventRecord', (100 + 10 * i) * US, US, kind='RECORD', arguments='event:ADDRESS,stream:ADDRESS', args=[0x500, 0x7])
    for number, (name, event, kind, type_) in enumerate([('StreamWaitEvent', 0x500, 'WAIT', 2), ('EventSynchronize', 0x500, 'SYNC', 1),
                                                         ('StreamWaitEvent', 0x900, 'WAIT', 2)], 41):
        name = prefix + name
        t.call(name, number * 10 * US, 5 * US, kind=kind, arguments='event:ADDRESS', args=[event])
        t.correlation(number, name, (number * 10 + 1) * US, 3 * US, kind=kind)
        t.work('sync', None, (number * 10 + 2) * US, US, number=number, type=type_, context=1, stream=7)
    return t.save(path)


def test_a_wait_names_the_call_that_recorded_its_event(analyze, validate, tmp_path):
    """The last one before it. What nobody recorded has no name, as torch's validator says."""
    out = tmp_path / 'export.json'
    analyze('export', 'chrome', waits(tmp_path / 'rank0.h.1.tfr'), '--output', out, format=None)
    exported = json.loads(out.read_text())
    first, last = (e['args'].get('correlation') for e in events(exported, 'cuda_runtime') if e['name'] == 'cudaEventRecord')
    assert first is None and last not in (None, 41, 42, 43)
    assert [e['args'].get('wait_on_cuda_event_record_corr_id') for e in events(exported, 'cuda_sync')] == [last, last, None]
    assert compare(analyze, validate, out) == {'_check_stream_wait_corr_id_populated': 1}


def test_a_program_of_the_driver(analyze, validate, tmp_path):
    """torch's validator knows the record of an event by the runtime's name; the trace that is read back has the driver's."""
    out, trace = tmp_path / 'export.json', waits(tmp_path / 'rank0.h.1.tfr', 'cu')
    analyze('export', 'chrome', trace, '--output', out, format=None)
    exported = json.loads(out.read_text())
    names = {e['name']: e['args'].get('function') for e in events(exported, 'cuda_driver')}
    assert names == {'cuEventRecord': None, 'cudaEventRecord': 'cuEventRecord', 'cuStreamWaitEvent': None, 'cuEventSynchronize': None}
    assert compare(analyze, validate, out) == {'_check_stream_wait_corr_id_populated': 1}
    assert [(r['name'], r['calls']) for r in analyze('api', out)['rows']] == [(r['name'], r['calls']) for r in analyze('api', trace)['rows']]
