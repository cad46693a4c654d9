"""The mutants of a module: its syntax tree with one operator, number or condition changed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_NOT_MUTATED = ("annotation", "returns", "decorator_list")
"""Never run, or (`@dataclass(slots=True)`) of no effect on what is decided."""


@dataclass(frozen=True)
class Change:
    """One mutant: its line, the first lines of the functions around it, and the expression before and after."""

    line: int
    functions: tuple[int, ...]
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.before}  →  {self.after}"


def changes(source: str) -> list[Change]:
    """All of them, in the order of the source."""
    found, tree = [], ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node, change in _places(tree):
        line, before = node.lineno, _text(node)
        around = tuple(_first_line(each) for each in functions if each.body[0].lineno <= line <= (each.end_lineno or 0))
        undo = change()
        found.append(Change(line, around, before, _text(node)))
        undo()
    return found


def mutated(source: str, number: int) -> ast.Module:
    """The tree with this one of `changes` made."""
    tree = ast.parse(source)
    for at, (_, change) in enumerate(_places(tree)):
        if at == number:
            change()
            break
    return ast.fix_missing_locations(tree)


def _first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """As its code object counts: with its decorators."""
    return min(node.lineno for node in (function, *function.decorator_list))


Undo = Callable[[], None]


def _places(tree: ast.AST, *, inside: bool = False) -> Iterator[tuple[ast.expr | ast.stmt, Callable[[], Undo]]]:
    """Where one can be changed.

    Constants only `inside` functions: elsewhere they are bounds of taste, and defaults, and `|` makes types. How much
    of a text a message shows, `{text[:80]}`, is a matter of taste, too.
    """
    for name, value in ast.iter_fields(tree):
        if name in _NOT_MUTATED or (isinstance(tree, ast.FormattedValue) and _is_excerpt(value)):
            continue
        within = inside or (name == "body" and isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef))
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                if within or not _is_constant(child):
                    yield from _of(child)
                yield from _places(child, inside=within)


def _is_excerpt(node: object) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)


def _is_constant(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr))


def _of(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, Callable[[], Undo]]]:
    match node:
        case ast.Compare(ops=ops):
            for at, op in enumerate(ops):
                for other in _COMPARISONS[type(op)]:
                    yield node, _set(ops, at, other())
        case ast.BoolOp(op=op):
            yield node, _put(node, "op", ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _ARITHMETIC:
            yield node, _put(node, "op", _ARITHMETIC[type(op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield node, _put(node, "operand", ast.UnaryOp(ast.Not(), node.operand))
        case ast.UnaryOp(op=ast.USub()):
            yield node, _put(node, "op", ast.UAdd())
        case ast.Constant(value=bool() as value):
            yield node, _put(node, "value", not value)
        case ast.Constant(value=int() | float() as value):
            yield node, _put(node, "value", value + 1)
        case ast.Call(func=ast.Name(id=name) as function) if name in _FUNCTIONS:
            yield node, _put(function, "id", _FUNCTIONS[name])
        case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test) if not isinstance(
            test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant
        ):
            yield node, _put(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.Break() | ast.Continue():
            yield node, _put(node, "__class__", ast.Break if isinstance(node, ast.Continue) else ast.Continue)


def _put(node: ast.AST, name: str, value: object) -> Callable[[], Undo]:
    def change() -> Undo:
        before = getattr(node, name)
        setattr(node, name, value)
        return lambda: setattr(node, name, before)

    return change


def _set(ops: list[ast.cmpop], at: int, op: ast.cmpop) -> Callable[[], Undo]:
    def change() -> Undo:
        before, ops[at] = ops[at], op
        return lambda: ops.__setitem__(at, before)

    return change


def _text(node: ast.AST) -> str:
    """Its source on one line; of an `if` or a loop the first."""
    return " ".join(ast.unparse(node).split("\n", 1)[0].split())
