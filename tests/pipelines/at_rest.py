"""at_rest - the end of a pipeline that used autograd's threads or gloo's: it waits until all of them sleep or have ended.

CPython before 3.14 ends a thread that asks for the interpreter while that finalizes, which C++ answers with
std::terminate. On a busy machine autograd's and gloo's threads still drop their last objects then, with a profiler or
without. Call wait_for_threads() last, after destroy_process_group().
"""

import pathlib
import time

NAMES = 'pt_autograd', 'pt_gloo'
PAUSE = 0.02


def _is_awake(thread):
    try:
        name, _, fields = (thread / 'stat').read_text().partition('(')[2].rpartition(')')
    except OSError:  # it has ended
        return False
    return name.startswith(NAMES) and fields.split()[0] != 'S'


def wait_for_threads():
    time.sleep(PAUSE)
    while any(map(_is_awake, pathlib.Path('/proc/self/task').iterdir())):
        time.sleep(PAUSE)
