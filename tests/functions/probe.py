"""probe - at(name) says which stage ought to be the innermost one here, as a mark in the trace; "-" for none."""
import ctypes

try:
    _mark = ctypes.CDLL(None).tfi_mark
except AttributeError:  # without the library
    def _mark(name):
        return None


def at(name):
    _mark(name.encode())
