"""growth_execution.py - hostile execution traces of PyTorch and the traces they are joined with, for growth.py.

A shape writes its execution trace as `execution.json` beside the trace; `execution_of` is its path.
"""

import json
from pathlib import Path

from growth_shapes import Recording, event, kineto, launch, launches, shape
from tfr import rec

TENSOR, INT, TUPLE = 1 | 2 << 8 | 6 << 24 | 7 << 16, 5 | 1 << 16, 11  # a tensor of two dimensions with sizes, strides and storage


def execution_of(path):
    path = Path(path)
    return (path if path.is_dir() else path.parent) / 'execution.json'


def node(number, function, parent=1, name='f', attributes=(), **members):
    rf_id = {'name': 'rf_id', 'type': 'uint64', 'value': function}
    return json.dumps({'id': number, 'name': name, 'ctrl_deps': parent, 'inputs': {'values': [[number, 3, 0, 4, 4, 'cuda:0']]},
                       'outputs': {'values': []}, 'attrs': [*attributes, rf_id], **members})


def execution(directory, nodes, members=''):
    with open(execution_of(directory), 'w') as file:
        file.write('{"schema":"1.1.1-chakra.0.0.4",%s"nodes":[\n' % members)
        for i, text in enumerate(nodes):
            file.write(',\n' + text if i else text)
        file.write('\n]}')


def function(number, start, time, tid=1, name='f'):
    return event('cpu_op', name, start, time, tid, **{'Record function id': number})


@shape(10000)
def functions_in_functions(directory, n):
    """N functions in each other, each with a launch, in an execution trace as deep, whose nodes come from the innermost on."""
    def events():
        for i in range(n):
            yield function(i + 1, 4 * i, 20 * n - 8 * i)
            yield from launch(i, 4 * i + 1)
    execution(directory, (node(i + 2, i + 1, i + 1) for i in reversed(range(n))))
    return kineto(directory, events())


@shape(3000)
def functions_that_ended(directory, n):
    """N functions in each other have ended when the function around them launches N kernels."""
    def events():
        yield function(n + 1, 0, 90 * n)
        for i in range(n):
            yield function(i + 1, 1 + i, 4 * n - 2 * i)
        yield from launches(n, 5 * n)
    execution(directory, (node(i + 2, i + 1) for i in range(n + 1)))
    return kineto(directory, events())


@shape(10000)
def crossing_functions(directory, n):
    """N functions that cross, N that begin at once, and N that take no time, with launches at their edges."""
    def events():
        for i in range(n):
            yield function(i + 1, i, 4 * n)
            yield function(n + i + 1, 20 * n, i)
            yield function(2 * n + i + 1, 40 * n, 0)
            yield from launch(3 * i, 2 * n + i)
            yield from launch(3 * i + 1, 20 * n + i)
            yield from launch(3 * i + 2, 40 * n)
    execution(directory, (node(i + 2, i + 1) for i in range(3 * n)))
    return kineto(directory, events())


@shape(10000)
def functions_of_one_number(directory, n):
    """N nodes of one function that launched N kernels, and N other functions of its number."""
    def events():
        yield function(1, 0, 10 * n)
        yield from launches(n, 1)
        for i in range(n):
            yield function(1, 20 * n + i, 1)
    execution(directory, (node(i + 2, 1) for i in range(n)))
    return kineto(directory, events())


@shape(10000)
def functions_of_threads(directory, n):
    """N functions of N names in N threads at the same time, each with a launch."""
    def events():
        for i in range(n):
            yield function(i + 1, i, 5 * n, 10 + i, f'f{i}')
            yield from launch(i, 2 * n + i, tid=10 + i)
    execution(directory, (node(i + 2, i + 1, name=f'f{i}') for i in range(n)))
    return kineto(directory, events())


@shape(200000)
def long_functions(directory, n):
    """Twenty functions and kernels with names of N bytes, and a member as long."""
    def names():
        return (f'f{i}' + '<' * n for i in range(20))

    def events():
        for i, name in enumerate(names()):
            yield function(i + 1, 100 * i, 90, name=name)
            yield from launch(i, 100 * i + 10, kernel=name)
    execution(directory, (node(i + 2, i + 1, name=name) for i, name in enumerate(names())), '"member":"%s",' % ('\\u00e9' * n))
    return kineto(directory, events())


@shape(10000)
def wide_nodes(directory, n):
    """A node with N attributes before its number, one with N members, one with lists in lists, and N members of the file."""
    attributes = [{'name': f'a{i}', 'type': 'string', 'value': ''} for i in range(n)]
    members = ''.join(f'"key{i}":{i},' for i in range(n))
    deep = node(4, 3, deep=7).replace('7}', '[' * n + ']' * n + '}')
    nodes = [node(2, 1, attributes=attributes), node(3, 2, **{f'k{i}': i for i in range(n)}), deep, *(node(i + 5, i + 9) for i in range(n))]

    def events():
        for i in range(3):
            yield function(i + 1, 100 * i, 90)
            yield from launch(i, 100 * i + 10)
    execution(directory, nodes, members)
    return kineto(directory, events())


@shape(10000)
def our_functions(directory, n):
    """N functions in each other, N on threads of their own and N whose handle is used again, in a trace of ours with the
    inputs, outputs and modules of each, and kernels."""
    r = Recording(directory)
    name, schema, launched = r.w.string('f'), r.w.string('f(Tensor a) -> Tensor'), r.w.string('cuda\x1fLAUNCH\x1fcuLaunchKernel\x1f')
    r.add(rec('thread', serial=1, tid=77, pthread=0x10000, time=900, name=r.w.string('main')))

    def begin(handle, time, thread=1, forward=0):
        words = [TENSOR, 64 * handle, 64 * handle + 8, 0, 6, 2, 3, 3, 1, TUPLE | 2 << 32, INT, handle, INT, 7]
        r.add(rec('function_begin', name=name, time=time, handle=handle, sequence=-1, logical_thread=thread, forward=forward, inputs=words))

    def end(handle, time):
        r.add(rec('function_end', schema=schema, time=time, handle=handle, outputs=[TENSOR, 64 * handle, 8, 0, 6, 2, 3, 3, 1],
                  modules=r.w.string(f'top.m{handle % 97}')))
    for i in range(n):
        at = 1000 + 40 * n + 10 * i
        begin(i + 1, 1000 + i)
        r.add(rec('call', func=launched, time=at, duration=3, result=0),
              rec('correlation', correlation=i + 1, func=launched, thread=0x10000, time=at + 1, duration=1),
              rec('kernel', name=r.w.string(f'k{i % 97}'), start=at + 5, duration=4, correlation=i + 1, stream=7))
        begin(n + i + 1, 1000 + i, i + 2, i + 1)
        end(n + i + 1, 1000 + 30 * n - i)
        begin(2 * n + 1, 1000 + i, 1)
    for i in reversed(range(n)):
        end(i + 1, 1000 + 60 * n - i)
    execution(directory, (node(i + 2, i + 1) for i in range(2 * n)))
    return r.save()
