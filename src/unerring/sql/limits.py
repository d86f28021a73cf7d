"""Limits on a statement's size, and the SQL that is not supported: checked before parsing, with line and column.

The parser, and what comes after it, go down into a statement by recursion, so its depth has a bound. What is long but
flat (AND and OR in a row, lists, columns) is bounded by the number of words alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from unerring.model import RuleError
from unerring.sql.source import Source

SIZE_MAX: Final = 200_000
"""Characters."""
WORDS_MAX: Final = 20_000
"""Words, numbers and signs."""
DEPTH_MAX: Final = 25
"""Parentheses, brackets and CASEs in each other, and signs before one operand."""
OPERATORS_MAX: Final = 120
"""Operators in a row; the AND and OR of a chain count once."""

_OPENING: Final = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSING: Final = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)
_SIGNS: Final = (TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE)
_BEFORE_A_VALUE: Final = (TokenType.ORDER_BY, TokenType.PARTITION_BY, TokenType.COMMA)


def check_text(source: Source) -> None:
    """Check the text before it is cut into words."""
    if len(source.text) > SIZE_MAX:
        raise RuleError(
            f"the statement has {len(source.text)} characters; the limit is {SIZE_MAX}: put long lists of values "
            "into a "
            "table and join it"
        )
    for offset, letter in enumerate(source.text):
        if "\ud800" <= letter <= "\udfff" or letter == "\0":
            raise source.wrong(offset, "here is a byte that is not UTF-8 text; write the statement in UTF-8")


def check_words(source: Source, tokens: Sequence[Any]) -> None:
    """Check the words before they are parsed."""
    if len(tokens) > WORDS_MAX:
        raise source.wrong(
            tokens[WORDS_MAX].start,
            f"the statement has {len(tokens)} words and signs; the limit is {WORDS_MAX}: put long lists of values into "
            "a table and join it",
        )
    depth = signs = in_pattern = 0
    windows: list[int] = []
    """The depths inside of OVER (...) and WINDOW name AS (...)."""
    for number, token in enumerate(tokens):
        kind = token.token_type
        if kind in _OPENING:
            depth += 1
            if kind is TokenType.L_PAREN and _opens_window(tokens, number):
                windows.append(depth)
            if kind is TokenType.L_PAREN and _opens_pattern(tokens, number):
                if windows and windows[-1] == depth - 1:
                    raise source.wrong(tokens[number - 1].start, _NO_WINDOWS)
                in_pattern = in_pattern or depth
        elif kind in _CLOSING:
            windows = windows[:-1] if windows and windows[-1] == depth else windows
            in_pattern = 0 if in_pattern == depth else in_pattern
            depth -= 1
        signs = signs + 1 if kind in _SIGNS else 0
        if max(depth, signs) > DEPTH_MAX and not in_pattern:  # patterns have their own reader, and their own bound
            raise source.wrong(token.start, f"nested more than {DEPTH_MAX} deep; write the inner part as a WITH query")


_NO_WINDOWS: Final = (
    "a PATTERN in a window (OVER, WINDOW) is not supported; write FROM table MATCH_RECOGNIZE (... AFTER MATCH SKIP TO "
    "NEXT ROW PATTERN (...)), and join it with the table where every row is wanted"
)


def _opens_window(tokens: Sequence[Any], number: int) -> bool:
    before = [token.token_type for token in tokens[max(number - 3, 0) : number]]
    named = len(before) == 3 and before[0] in (TokenType.WINDOW, TokenType.COMMA) and before[2] is TokenType.ALIAS
    return before[-1:] == [TokenType.OVER] or named


def _opens_pattern(tokens: Sequence[Any], number: int) -> bool:
    """Whether it is PATTERN (, and not a function of that name."""
    if number == 0 or tokens[number - 1].text.upper() != "PATTERN":
        return False
    return number == 1 or tokens[number - 2].token_type not in _BEFORE_A_VALUE


def check_tree(source: Source, tree: exp.Expr) -> None:
    """Check the tree after parsing: chains of operators are as deep as they are long."""
    waiting: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > OPERATORS_MAX:
            raise source.wrong(
                node, f"more than {OPERATORS_MAX} operators in a row; compute a part in a subquery, or use IN (...)"
            )
        for child in node.iter_expressions():
            chained = isinstance(node, exp.And | exp.Or) and type(child) is type(node)
            waiting.append((child, depth if chained else depth + 1))
