"""The pattern's own small language, read into a pattern tree. Its text comes straight from the statement.

pattern    := branch { | branch }
branch     := { factor }, at least one
factor     := primary [quantifier [?]]
primary    := variable | ^ | $ | ( ) | ( pattern ) | {- pattern -} | PERMUTE ( pattern {, pattern} )
quantifier := * | + | ? | {n} | {n,} | {,m} | {n,m} | {,}

A variable without quotes is written in capitals from here on, as SQL does with names.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from unerring.model import RuleError
from unerring.rules import (
    PERMUTE_MAX,
    Alternation,
    Empty,
    EndAnchor,
    Exclusion,
    Pattern,
    Permute,
    Quantified,
    Sequence,
    StartAnchor,
    Step,
)
from unerring.sql.source import Source

TIMES_MAX: Final = 1_000
"""The largest number in a quantifier: repetitions are unrolled, so each costs memory."""
DEPTH_MAX: Final = 100
"""How deep groups may be nested."""

_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<quoted>"(?:[^"]|"")*")
      | (?P<word>[^\W\d]\w*)
      | (?P<number>\d+)
      | (?P<sign>\{-|-\}|[|()*+?{},^$])""",
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    text: str
    kind: str
    offset: int


def parse_pattern(text: str, offset: int, source: Source) -> Pattern:
    """The tree of a pattern whose text stands at `offset` of the statement."""
    return _Reader(text, offset, source).whole()


class _Reader:
    def __init__(self, text: str, offset: int, source: Source) -> None:
        self._source = source
        self._tokens: list[Token] = []
        at = 0
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                raise source.wrong(offset + at, f"{text[at]!r} is not allowed in a pattern")
            if token.lastgroup != "blank":
                self._tokens.append(Token(token.group(), str(token.lastgroup), offset + at))
            at = token.end()
        self._tokens.append(Token("", "end", offset + len(text)))
        self._next = 0
        self._depth = 0

    # --- tokens ---

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _take(self, *signs: str) -> bool:
        if self._token.kind == "sign" and self._token.text in signs:
            self._next += 1
            return True
        return False

    def _need(self, sign: str, what: str) -> None:
        if not self._take(sign):
            raise self._source.wrong(self._token.offset, f"{what}: {sign!r} is missing before {self._shown()}")

    def _shown(self) -> str:
        return repr(self._token.text) if self._token.text else "the end of the pattern"

    # --- grammar ---

    def whole(self) -> Pattern:
        if self._token.kind == "end":
            raise self._source.wrong(self._token.offset, "the pattern is empty; an empty match is written ()")
        pattern = self._alternation()
        if self._token.kind != "end":
            raise self._source.wrong(self._token.offset, f"{self._shown()} is not expected here")
        return pattern

    def _alternation(self) -> Pattern:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._source.wrong(
                self._token.offset, f"groups are nested more than {DEPTH_MAX} deep; flatten the pattern"
            )
        options = [self._branch()]
        while self._take("|"):
            options.append(self._branch())
        self._depth -= 1
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _branch(self) -> Pattern:
        parts: list[Pattern] = []
        while (part := self._factor()) is not None:
            parts.append(part)
        if not parts:
            raise self._source.wrong(
                self._token.offset, f"a variable or a group is missing before {self._shown()}; 'nothing' is written ()"
            )
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _factor(self) -> Pattern | None:
        start = self._token.offset
        part = self._primary()
        if part is None:
            return None
        times = self._quantifier()
        if times is None:
            return part
        least, most = times
        greedy = not self._take("?")
        if self._token.kind == "sign" and self._token.text in "*+?{":
            raise self._source.wrong(
                self._token.offset, "a quantifier after a quantifier; put the first one into a group"
            )
        try:
            return Quantified(part, least, most, greedy)
        except RuleError as error:
            raise self._source.wrong(
                start, f"{error}; the upper bound is at least 1 and at least the lower one"
            ) from None

    def _primary(self) -> Pattern | None:
        token = self._token
        if token.kind == "word":
            self._next += 1
            if token.text.upper() == "PERMUTE" and self._token.text == "(":
                return self._permute(token)
            return Step(token.text.upper())
        if token.kind == "quoted":
            self._next += 1
            return Step(token.text[1:-1].replace('""', '"'))
        if self._take("^"):
            return StartAnchor()
        if self._take("$"):
            return EndAnchor()
        if self._take("{-"):
            inside = self._alternation()
            self._need("-}", "the exclusion is not closed")
            return Exclusion(inside)
        if self._take("("):
            if self._take(")"):
                return Empty()
            inside = self._alternation()
            self._need(")", "the group is not closed")
            return inside
        if token.kind == "sign" and token.text in "*+?{":
            raise self._source.wrong(token.offset, f"{token.text!r} has nothing before it to repeat")
        if token.kind == "number":
            raise self._source.wrong(
                token.offset, f"{token.text!r} is not a variable; a number of times is written {{n}}"
            )
        return None

    def _permute(self, keyword: Token) -> Pattern:
        self._need("(", "PERMUTE needs its parts")
        parts = [self._alternation()]
        while self._take(","):
            parts.append(self._alternation())
        self._need(")", "PERMUTE is not closed")
        if len(parts) > PERMUTE_MAX:
            raise self._source.wrong(keyword.offset, f"PERMUTE of {len(parts)} parts; it takes at most {PERMUTE_MAX}")
        return parts[0] if len(parts) == 1 else Permute(tuple(parts))

    def _quantifier(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if not self._take("{"):
            return None
        least = self._number()
        most = least
        if self._take(","):
            most = self._number()
        elif least is None:
            raise self._source.wrong(self._token.offset, f"a number of times is missing before {self._shown()}")
        self._need("}", "the quantifier is not closed")
        return least or 0, most

    def _number(self) -> int | None:
        token = self._token
        if token.kind != "number":
            return None
        self._next += 1
        if int(token.text) > TIMES_MAX:
            raise self._source.wrong(
                token.offset, f"{token.text} times; a quantifier goes up to {TIMES_MAX}, or use *, + or {{n,}}"
            )
        return int(token.text)
