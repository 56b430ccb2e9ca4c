"""journal - a pipeline's own account of its work: the names it entered and left, in order, as JSON lines.

A pipeline writes the journal to the file JOURNAL ({rank} and {pid} are replaced), or nowhere. The journal knows no
profiler, and no profiler knows it; the tests compare stages with it. Every line is [lane, "enter" or "exit", name]; a
lane is a thread, or an asyncio task in it.
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
    return _lanes.setdefault(id(who), (len(_lanes), who))[0]  # keeps the object, so its id stays unique


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
    """Journals the forward calls of a torch module."""
    module.register_forward_pre_hook(lambda *_: enter(name))
    module.register_forward_hook(lambda *_: leave(name))


def path_of(variable):
    """A file name from the environment, with {rank} and {pid} filled in, or None."""
    path = os.environ.get(variable)
    return path and path.format(rank=os.environ.get('RANK', '0'), pid=os.getpid())


def table(profile):
    """Writes torch.profiler's printed table of a profile, with all rows, to the file TABLE."""
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
