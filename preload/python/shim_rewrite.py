"""shim_rewrite - makes code for a function of TFI_STAGES from its source, in Pythons without sys.monitoring.

    def f(...):                          def f(...):
        "doc"                                "doc"
        global g                             global g
        body                                 if __tfinject_compiling__():
                                                 body
                                             else:
                                                 with WATCHED:
                                                     body with these changes:
                                                         return X      -> return WATCHED.result(X)
                                                         yield X       -> WATCHED.back((yield WATCHED.out(X)))
                                                         yield from X  -> yield from WATCHED.each(X)
                                                         in a generator, a handler (except, finally) that may
                                                         catch an exception thrown in at a yield begins with
                                                         WATCHED.back(None)

WATCHED is a constant of the code. The name of the test is the only one of ours that a program could find, in
`builtins`; to torch.compile it is torch.compiler.is_compiling, a constant. Lines, closures and super() are unchanged.
"""

import _ast
import _warnings
import builtins
import sys

_PLACE = "\0tfinject"  # stands for the constant until the code is compiled
_TEST = "__tfinject_compiling__"
_ONLY_AST = 0x400
_FUTURES = 0x1ff0000 & ~0x10000  # flags of `from __future__ import` in code
_scopes = (_ast.FunctionDef, _ast.AsyncFunctionDef, _ast.Lambda, _ast.ClassDef)

setattr(builtins, _TEST, lambda: False)


def _find_compiler(module):
    setattr(builtins, _TEST, module.is_compiling)


_when_imported("torch.compiler", _find_compiler)


class _Silence:
    """Silences the compiler: its warnings were shown when the file was first compiled."""

    def __enter__(self):
        self.filters = getattr(sys.modules.get("warnings"), "filters", None) or _warnings.filters
        self.filters.insert(0, ("ignore", None, Warning, None, 0))
        _warnings._filters_mutated()

    def __exit__(self, kind, error, traceback):
        del self.filters[0]
        _warnings._filters_mutated()


def _rewritten(target, code):
    """Returns new code for a function, or None if its source is missing or does not match the code."""
    with _Silence():
        return _rewritten_silently(target, code)


def _rewritten_silently(target, code):
    try:
        with open(code.co_filename, "rb") as file:
            source = file.read()
        tree = compile(source, code.co_filename, "exec", _ONLY_AST | (code.co_flags & _FUTURES), True)
    except (OSError, SyntaxError, ValueError):
        return None
    node = _definition(tree, code)
    if node is None:
        return None
    tree.body = [s for s in tree.body if s is node or any(n is node for n in _walk(s))]
    _change(node)
    made = compile(tree, code.co_filename, "exec", code.co_flags & _FUTURES, True)
    watched = _Watched(target, code)
    for found in _codes_below(made):
        if found.co_name == code.co_name and found.co_firstlineno == code.co_firstlineno:
            same = (found.co_freevars == code.co_freevars and found.co_argcount == code.co_argcount
                    and found.co_varnames[:code.co_argcount] == code.co_varnames[:code.co_argcount])
            return found.replace(co_consts=_with_constant(found.co_consts, watched)) if same else None
    return None


def _with_constant(constants, watched):
    return tuple(watched if type(c) is str and c == _PLACE else c for c in constants)


def _codes_below(code):
    for constant in code.co_consts:
        if type(constant) is _Code:
            yield constant
            yield from _codes_below(constant)


def _children(node):
    for name in node._fields:
        value = getattr(node, name, None)
        for child in value if isinstance(value, list) else (value,):
            if isinstance(child, _ast.AST):
                yield child


def _walk(node):
    for child in _children(node):
        yield child
        yield from _walk(child)


def _definition(tree, code):
    for node in _walk(tree):
        if isinstance(node, (_ast.FunctionDef, _ast.AsyncFunctionDef)) and node.name == code.co_name:
            first = node.decorator_list[0] if node.decorator_list else node
            if first.lineno == code.co_firstlineno:
                return node
    return None


def _copy(node):
    """Returns a deep copy of a tree."""
    if isinstance(node, list):
        return [_copy(n) for n in node]
    if not isinstance(node, _ast.AST):
        return node
    new = type(node)()
    for name in node._fields + node._attributes:
        if hasattr(node, name):
            setattr(new, name, _copy(getattr(node, name)))
    return new


def _change(function):
    body = function.body
    first = body[0]
    doc = isinstance(first, _ast.Expr) and isinstance(first.value, _ast.Constant) and isinstance(first.value.value, str)
    head, body = (body[:1], body[1:]) if doc else ([], body)
    head = head + [n for s in body for n in _declarations(s)]
    body = [_without_declarations(s) for s in body] or [_at(_ast.Pass(), first)]
    plain = _copy(body)
    place = body[0]
    body = [_marked(s) for s in body]
    if any(isinstance(n, (_ast.Yield, _ast.YieldFrom)) for s in body for n in _own(s)):
        for statement in body:
            _catching(statement)
    item = _ast.withitem(context_expr=_constant(place), optional_vars=None)
    scope = _at(_ast.With(items=[item], body=body, type_comment=None), place)
    test = _at(_ast.Call(func=_at(_ast.Name(id=_TEST, ctx=_ast.Load()), place), args=[], keywords=[]), place)
    function.body = head + [_at(_ast.If(test=test, body=plain, orelse=[scope]), place)]


def _at(node, place):
    for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
        setattr(node, name, getattr(place, name, None))
    return node


def _constant(place):
    return _at(_ast.Constant(value=_PLACE, kind=None), place)


def _call(method, value, place):
    function = _at(_ast.Attribute(value=_constant(place), attr=method, ctx=_ast.Load()), place)
    return _at(_ast.Call(func=function, args=[value], keywords=[]), place)


def _declarations(node):
    """Returns global and nonlocal statements, which must precede the first of two copies."""
    if isinstance(node, (_ast.Global, _ast.Nonlocal)):
        return [node]
    return [] if isinstance(node, _scopes) else [n for c in _children(node) for n in _declarations(c)]


def _without_declarations(node):
    if isinstance(node, (_ast.Global, _ast.Nonlocal)):
        return _at(_ast.Pass(), node)
    return node if isinstance(node, _scopes) else _each_child(node, _without_declarations)


def _own(node):
    """Yields the nodes of a statement, without those of functions in it."""
    yield node
    if not isinstance(node, _scopes):
        for child in _children(node):
            yield from _own(child)


def _catching(statement):
    for node in list(_own(statement)):
        if isinstance(node, _ast.ExceptHandler) or (isinstance(node, _ast.Try) and node.finalbody):
            body = node.body if isinstance(node, _ast.ExceptHandler) else node.finalbody
            nothing = _at(_ast.Constant(value=None, kind=None), body[0])
            body.insert(0, _at(_ast.Expr(value=_call("back", nothing, body[0])), body[0]))


def _each_child(node, change):
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            setattr(node, name, [change(v) if isinstance(v, _ast.AST) else v for v in value])
        elif isinstance(value, _ast.AST):
            setattr(node, name, change(value))
    return node


def _marked(node):
    """Returns the statement or expression with its returns and yields marked, except those of functions inside it."""
    if isinstance(node, _scopes):
        return node
    _each_child(node, _marked)
    if isinstance(node, _ast.Return) and node.value is not None:
        node.value = _call("result", node.value, node)
    elif isinstance(node, _ast.YieldFrom):
        node.value = _call("each", node.value, node)
    elif isinstance(node, _ast.Yield):
        value = node.value or _at(_ast.Constant(value=None, kind=None), node)
        node.value = _call("out", value, node)
        return _call("back", node, node)
    return node
