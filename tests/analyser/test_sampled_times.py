"""test_sampled_times - whose the processor time of sampled periods is: not that of a function in which the thread waits."""

from small_traces import clock_chunk
from tfr import NESTED, STAGE, Writer, end_of, rec

MS, NANOSLEEP, GIL, RUNNABLE, RAN = 10 ** 6, 230 + 1, 202 + 1, 256, 1024
# (function, ms of processor time, system call, flags) of periods of 20 ms; the stages take five each
PERIODS = [('nap', 8, NANOSLEEP, 0), ('nap', 6, 0, RUNNABLE), ('work', 9, 0, RAN), ('nap', 7, NANOSLEEP, 0), ('nap', 0, NANOSLEEP, 0),
           ('work', 12, 0, RUNNABLE), ('wait', 5, GIL, 128), ('work', 10, 0, RAN), ('nap', 20, NANOSLEEP, 0), ('work', 15, 0, RAN)]
# The first two find room of 11 ms in the work after them. The fourth finds none in its stage, the ninth only 5 ms.
EXPECTED = {('load', 'nap'): 10, ('load', 'work'): 20, ('decode', 'work'): 47, ('decode', 'wait'): 0, ('decode', 'nap'): 15}


def traced(path):
    w = Writer(pid=7)
    clock_chunk(w, [(0, 0, 10 ** 18)])
    records = [rec('thread', serial=1, tid=7, name=w.string('main'), time=0)]
    for i, stage in enumerate(('load', 'decode')):
        begin = rec('range_begin', name=w.string(stage), time=(100 * i + 1) * MS, id=i + 1, flags=NESTED | STAGE)
        records += [begin, end_of(begin, (100 * i + 101) * MS, 1)]
    for i, (name, cpu, call, flags) in enumerate(PERIODS):
        stack = w.stack((name, '/job/run.py', 3), ('<module>', '/job/run.py', 9))
        records.append(rec('sample', tid=7, time=(20 * i + 1) * MS, duration=20 * MS, cpu=cpu * MS, call=call, flags=flags, stack=stack, looks=1))
    w.chunk(sorted(records, key=lambda r: r.values['time']), thread=1, tid=7)
    w.footer()
    w.save(path / 'rank0.h.7.tfr')


def test_processor_time_of_waits(analyze, tmp_path):
    """A thread that waits at the end of a period has used the time before, in what the next look of its stage finds running."""
    traced(tmp_path)
    for stage in ('load', 'decode'):
        rows = {row['name']: row for row in analyze('hotspots', tmp_path, '--stage', stage)['rows'] if row['samples']}
        assert {name: row['cpu_us'] for name, row in rows.items()} == {name: 1000 * ms for (of, name), ms in EXPECTED.items() if of == stage}
        assert all(abs(row['cpu_us'] + row['waiting_us'] - row['wall_us']) < 1 for row in rows.values())
    assert sum(EXPECTED.values()) == sum(cpu for _, cpu, *_ in PERIODS)
