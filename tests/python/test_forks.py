"""test_forks - os.fork() under the library: from 3.12 on Python warns of a second thread, and none of ours may be one."""

import json

import pytest

import pythons

# Prints how many warnings there were, and the calls of os.fork() after which a thread of ours was absent, by the way to call it.
PROGRAM = '''
import ctypes, functools, json, multiprocessing, os, sys, warnings
t = ctypes.CDLL(None)
def recorded():
    if sys.argv[1:] != ['sampler']: t.tfi_range_push(b'recorded'), t.tfi_range_pop() # wakes the process
    open(os.devnull).close()
def threads():
    return len(os.listdir('/proc/self/task'))
def end(pid):
    if not pid: os._exit(0)
    os.waitpid(pid, 0)
def plain():
    pid = os.fork()
    there = threads()
    end(pid)
    return there
def deeper():
    def fork():
        return os.fork()
    pid = fork()
    there = threads()
    end(pid)
    return there
def terminal():
    pid, fd = os.forkpty()
    there = threads()
    end(pid), os.close(fd)
    return there
def process():
    child = multiprocessing.get_context('fork').Process(target=int)
    child.start(), child.join()
    return threads()
refused = False
def refuse(event, arguments):
    if refused and event == 'os.fork': raise PermissionError(event)
def raising():
    global refused
    def fork():
        os.fork()
    refused = True
    try: fork()
    except PermissionError: pass
    refused = False
    return threads()
busy = lambda: [[int() for _ in range(9)] for _ in range(99)]
os.register_at_fork(before=recorded, after_in_parent=recorded)
os.register_at_fork(before=busy, after_in_parent=busy)
os.register_at_fork(after_in_parent=functools.partial(open, os.devnull)) # without a frame of its own
sys.addaudithook(refuse)
recorded()
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter('always')
    there = {way.__name__: [way() for _ in range(20)] for way in (plain, deeper, terminal, process, raising)}
print(json.dumps([[str(w.message) for w in seen if w.category is DeprecationWarning], there]))
'''
# The variables, and how many threads there are at least when os.fork() has returned. A closed chunk or a record that is due
# starts one more, and so does the sampler where it wakes the process.
THREADS = {
    'none': ({}, 1),
    'sampler': ({'TFI_SAMPLE_HZ': '50', 'TFI_ACTIVITIES': ''}, 2),
    'awake': ({'TFI_SAMPLE_HZ': '50'}, 3),
    'silence': ({'TFI_HANG_S': '60'}, 2),
    'calling': ({'TFI_NVML_HZ': '10'}, 2),
    'trigger': ({'TFI_TRIGGER': 'file:switch'}, 1),
}


@pytest.mark.parametrize('threads', THREADS)
@pythons.by_version((3, 12))
def test_no_thread_of_ours_in_os_fork(run, tmp_path, python, threads):
    """os.fork() and os.forkpty() warn of nothing, whatever the handlers around the fork do, and our threads are back when they return."""
    script = tmp_path / 'program.py'
    script.write_text(PROGRAM)
    env, count = THREADS[threads]
    done = run([python.path, script, threads], env={'TFI_SAMPLE_HZ': '0', 'TFI_HANG_S': '0', 'TFI_ACTIVITIES': 'io', **env})
    assert done.rc == 0, done.err
    warned, there = json.loads(done.out.splitlines()[-1])
    assert not warned
    assert min(min(found) for found in there.values()) >= count, there
