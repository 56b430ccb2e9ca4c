"""shim_compile.py - records the phases of torch.compile: dynamo, Inductor, Triton, with frame, attempt and the cause of a
recompilation; graph breaks by reason.

torch tells them to its own log of events, whose functions are seen from preload/python/calls.c: nothing of torch's is
replaced, and its profiler stays off.
"""

import sys

_MOST_REASONS = 32  # graph breaks of other reasons are not told apart
_SHORTEST = 200000  # nanoseconds; a phase that takes less has no record


def _line_of(text):
    """The first line that says something, at most 300 characters."""
    for line in str(text).splitlines():
        if line.strip():
            return line.strip()[:300]
    return ""


def _tell_phase(name, start, end, id, frame="", reason=""):
    if end - start >= _SHORTEST:
        begin, finish = _ticks_of(start, end - start)
        _compiled(_line_of(name), begin, finish, id, frame, reason)


@_guarded
def _phase_ended(start, end, args):
    # log_event_end(self, event_name, time_ns, metadata, start_time_ns, ...)
    if len(args) >= 5 and type(args[3]) is dict:
        id = args[3].get("compile_id")
        _tell_phase(args[1], args[4], args[2], id if type(id) is str and id != "None" else "")


_breaks = {}  # reason -> count that was told


def _tell_breaks():
    counters = sys.modules["torch._dynamo.utils"].counters.get("graph_break") or {}
    for reason, count in list(counters.items()):
        if _breaks.get(reason) != count and (reason in _breaks or len(_breaks) < _MOST_REASONS):
            _breaks.setdefault(reason, 0)
            _breaks[reason] = count
            _metadata("torch.graph_break.%d" % list(_breaks).index(reason), "%d times: %s" % (count, _line_of(reason)), "torch")


@_guarded
def _frame_compiled(start, end, args):
    # record_compilation_metrics(start_time_ns, end_time_ns, metrics, exc_type, exc_value)
    if len(args) < 3 or type(args[2]) is not dict:
        return
    metrics = args[2]
    id = metrics.get("compile_id") or sys.modules["torch._guards"].CompileContext.current_compile_id()
    place = "%s %s:%s" % (metrics.get("co_name"), metrics.get("co_filename"), metrics.get("co_firstlineno"))
    reason = metrics.get("recompile_reason") or ""
    _tell_phase("compile", args[0], args[1], str(id) if id else "", place if metrics.get("co_name") else "", _line_of(reason))
    _tell_breaks()


def _watch_dynamo(utils):
    log = utils.__dict__.get("ChromiumEventLogger")
    ended = log and log.__dict__.get("log_event_end")
    metrics = utils.__dict__.get("record_compilation_metrics")
    if not (ended and metrics and _on_calls(ended, _guarded, 4, _phase_ended) and _on_calls(metrics, _guarded, 4, _frame_compiled)):
        _debug("torch.compile: its phases are not recorded: this release has other functions")
