"""Conditions that are written in a model: comparisons of variables, in the spelling of Python, FEEL, XPath or `${...}`.

They are parsed, never evaluated as they came: what is not a comparison, a variable, a constant, `and`, `or` or `not` is
refused. The result is a plain function whose parameters are the variables that it reads, as `@process.condition` takes.
"""

from __future__ import annotations

import ast
import inspect
import keyword
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from unerring.model import ProcessError
from unerring.processes.bpmn.model import variable

LENGTH_MAX: Final = 2_000
"""Characters of a condition."""
_GIVEN: Final = "_given"
NONE: Final = "none"
"""What a gateway's condition answers if no flow may be taken: the process fails, as BPMN says."""

_TOKEN: Final = re.compile(
    r"""\s*(?:(?:[^\W\d][\w.-]*:)?getData(?:Object|Input|Output)\(\s*(?:'(?P<data>[^']*)'|"(?P<other>[^"]*)")\s*\)"""
    r"""|(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<number>\d+(?:\.\d+)?)|(?P<name>[^\W\d]\w*)"""
    r"""|(?P<sign>==|!=|<=|>=|&&|\|\||[-+*/%<>=!(),.\[\]]))"""
)
"""The first is XPath, as BPMN says it: bpmn:getDataObject('amount')."""
_SIGNS: Final = {"&&": "and", "||": "or", "!": "not", "=": "=="}
_WORDS: Final = {"true": "True", "false": "False", "null": "None", "eq": "==", "ne": "!=", "lt": "<", "gt": ">"}
_KEYWORDS: Final = ("and", "or", "not", "in", "True", "False", "None")
_ALLOWED: Final = (
    ast.Expression,
    ast.BoolOp,
    ast.And,
    ast.Or,
    ast.UnaryOp,
    ast.Not,
    ast.USub,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Compare,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.In,
    ast.NotIn,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.List,
    ast.Tuple,
)


def parsed(text: str, phrases: Collection[str] = ()) -> ast.expr:
    """An expression of a model. ProcessError: it is none that has a meaning here. `phrases`: the variables whose names
    may be written as several words, as FEEL has it: service_level as Service level."""
    inner = text.strip()
    if inner.startswith(("${", "#{")) and inner.endswith("}"):
        inner = inner[2:-1]
    inner = inner.strip().removeprefix("=")
    if len(inner) > LENGTH_MAX:
        raise ProcessError(f"it has {len(inner)} characters; the limit is {LENGTH_MAX}")
    try:
        tree = ast.parse(_in_python(inner, phrases), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ProcessError(f"{_short(text)} is no comparison of variables") from None
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise ProcessError(f"{_short(text)} has {type(node).__name__.lower()}, which a condition cannot have")
    return tree.body


def names_in(*expressions: ast.expr) -> list[str]:
    """The variables that expressions read, in their order."""
    walked = (node for expression in expressions for node in ast.walk(expression))
    return list(dict.fromkeys(node.id for node in walked if isinstance(node, ast.Name)))


def choice(name: str, ways: Sequence[tuple[str, ast.expr | None]]) -> Callable[..., Any]:
    """A function that answers with the label of the first way whose expression holds; one without always does."""
    answer: ast.expr = ast.Constant(NONE)
    for label, expression in reversed([*(w for w in ways if w[1]), *(w for w in ways if not w[1])]):
        taken = ast.Constant(label)
        answer = taken if expression is None else ast.IfExp(expression, taken, answer)
    return _function(name, answer, names_in(*(e for _, e in ways if e is not None)))


def holds(name: str, expression: ast.expr, negated: bool = False) -> Callable[..., Any]:
    """A function that says whether an expression holds, or does not."""
    body: ast.expr = ast.UnaryOp(ast.Not(), expression)
    return _function(name, body if negated else ast.UnaryOp(ast.Not(), body), names_in(expression))


def opposite(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that says whether a given one does not hold."""
    reads = list(inspect.signature(function).parameters)
    given = [ast.keyword(read, ast.Name(read, ast.Load())) for read in reads]
    call = ast.Call(ast.Name(_GIVEN, ast.Load()), [], given)
    return _function(name, ast.UnaryOp(ast.Not(), call), reads, function)


def any_of(expressions: Sequence[ast.expr]) -> ast.expr:
    return expressions[0] if len(expressions) == 1 else ast.BoolOp(ast.Or(), list(expressions))


def negation(expression: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), expression)


def equals(variable: str, value: str) -> ast.expr:
    return ast.Compare(ast.Name(variable, ast.Load()), [ast.Eq()], [ast.Constant(value)])


def _function(name: str, body: ast.expr, reads: Sequence[str], given: Any = None) -> Callable[..., Any]:
    called = name if name.isidentifier() and not keyword.iskeyword(name) else "condition"
    module = ast.parse(f"def {called}({', '.join(reads)}): return None")
    define = module.body[0]
    if isinstance(define, ast.FunctionDef):
        define.body = [ast.Return(body)]
    ast.fix_missing_locations(module)
    names: dict[str, Any] = {"__builtins__": {}, _GIVEN: given}
    exec(compile(module, f"<condition {name}>", "exec"), names)  # of a tree that has nothing but what is allowed
    function: Callable[..., Any] = names[called]
    function.__name__ = name
    return function


def _in_python(text: str, phrases: Collection[str]) -> str:
    words: list[str] = []
    named: list[str] = []
    """The words of the variable under way."""
    at = 0
    text = text.strip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise SyntaxError(text[at:])
        at = token.end()
        found = token.group().strip()
        data = token["data"] or token["other"]
        if data:
            _check_phrase(named, phrases)
            found, named = variable(data), []
        elif token["name"] and found not in _WORDS and found not in _KEYWORDS:
            if keyword.iskeyword(found):
                raise SyntaxError(found)
            if named:
                words.pop()
            named = [*named, found]
            found = variable(" ".join(named))
        else:
            _check_phrase(named, phrases)
            named = []
            found = _SIGNS.get(found, found) if token["sign"] else _WORDS.get(found, found)
        words.append(found)
    _check_phrase(named, phrases)
    return " ".join(words)


def _check_phrase(words: Sequence[str], phrases: Collection[str]) -> None:
    if len(words) > 1 and variable(" ".join(words)) not in phrases:
        raise SyntaxError(" ".join(words))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 80 else f"{text[:80]}…")
