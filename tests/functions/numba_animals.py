"""numba_animals - compiled functions that a module can hold; zoo_numba.py uses each of them."""
import numba
import numpy as np


def helper(x):
    return x * 2


@numba.njit
def compiled(x):
    return x + 1


@numba.njit(cache=False, inline="always")
def inlined(x):
    return x + 2


@numba.njit
def caller(x):
    return compiled(x) + inlined(x)


@numba.jit(forceobj=True)
def in_object_mode(x):
    return str(x) + "!"


@numba.vectorize(["float64(float64, float64)"])
def vectorized(x, y):
    return x * y


@numba.guvectorize(["void(float64[:], float64[:])"], "(n)->(n)")
def generalized(x, result):
    for i in range(x.shape[0]):
        result[i] = x[i] + 1


@numba.stencil
def stencil(a):
    return a[0] + a[-1]


@numba.cfunc("float64(float64)")
def callback(x):
    return x * 3


@numba.njit
def numbers(n):
    for i in range(n):
        yield i


@numba.extending.overload(helper)
def overload_of_helper(x):
    return lambda x: x * 2


@numba.njit
def calls_helper(x):
    return helper(x)


@numba.experimental.jitclass([("n", numba.int64)])
class Counter:
    def __init__(self, n):
        self.n = n

    def add(self, x):
        self.n += x
        return self.n


def later(x):
    return x + np.int64(4)
