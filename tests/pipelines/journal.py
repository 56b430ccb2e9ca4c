"""journal - what a pipeline of these tests did, by its own account: the names it entered and left, in order, as JSON lines.

A pipeline writes it where JOURNAL says ({rank} and {pid} are replaced), or not at all. It knows nothing of any profiler,
and no profiler knows of it: it is what stages are compared with. Every line is [lane, "enter" or "exit", name]; a lane is
a thread, or an asyncio task in it.
"""

import asyncio
import atexit
import json
import os
import threading
from contextlib import contextmanager

_lines = []
_lanes = {}


def _lane():
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    who = task or threading.current_thread()
    return _lanes.setdefault(id(who), (len(_lanes), who))[0]  # the object is kept, so that its id stays its own


def enter(name):
    _lines.append([_lane(), 'enter', name])


def leave(name):
    _lines.append([_lane(), 'exit', name])


@contextmanager
def entry(name):
    enter(name)
    try:
        yield
    finally:
        leave(name)


def watch(module, name):
    """Notes the forward calls of a torch module."""
    module.register_forward_pre_hook(lambda *_: enter(name))
    module.register_forward_hook(lambda *_: leave(name))


def path_of(variable):
    """A file name from the environment, with {rank} and {pid} filled in, or None."""
    path = os.environ.get(variable)
    return path and path.format(rank=os.environ.get('RANK', '0'), pid=os.getpid())


def table(profile):
    """What torch.profiler prints of a profile, all rows of it."""
    path = path_of('TABLE')
    if path:
        with open(path, 'w') as out:
            out.write(profile.key_averages(group_by_input_shape=True).table(row_limit=-1))


def save():
    path = path_of('JOURNAL')
    if path and _lines:  # a spawned worker imports the pipeline too
        with open(path, 'w') as out:
            out.writelines(json.dumps(line) + '\n' for line in _lines)


atexit.register(save)
