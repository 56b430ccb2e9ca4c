"""lines - a program of Python alone, whose time goes into one line or into two: lines.py one|two."""

import sys
import time

SECONDS = 1.5  # of the processor, for each


def until(end):
    """Runs lines of its caller: what it does itself is one call."""
    return time.process_time() < end


def first():
    end = time.process_time() + SECONDS
    while until(end):
        sum(range(20_000))


def second():
    end = time.process_time() + SECONDS
    while until(end):
        sorted(range(20_000), reverse=True)


first()
if sys.argv[1] == 'two':
    second()
