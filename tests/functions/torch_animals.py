"""torch_animals - what a module of a program with torch can hold; zoo_torch.py uses each of them."""
import functools

import numpy as np
import torch


def helper(x):
    return x * 2


def function(x, scale=3):
    return (x * scale).relu() + helper(x)


def caller(x):
    y = helper(x)
    return function(y)


def traced(inner):
    @functools.wraps(inner)
    def wrapper(*args):
        return inner(*args)
    return wrapper


@traced
def decorated(x):
    return x + 1


@torch.no_grad()
def nothing(x):
    return x * 2


@torch.inference_mode()
def inference(x):
    return x + 1


class Model(torch.nn.Module):
    layer = torch.nn.Identity()

    def part(self, x):
        return helper(x)

    def forward(self, x):
        return self.part(x) + 1


class Op(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g * 3


model = torch.nn.Linear(4, 2)
compiled = torch.compile(lambda x: x + 1, backend="eager")
ufunc = np.add
op = Op.apply


@torch.jit.script
def scripted(x: torch.Tensor):
    return x * 2


try:
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(x_ptr, BLOCK: tl.constexpr):
        pass
except ImportError:
    pass
