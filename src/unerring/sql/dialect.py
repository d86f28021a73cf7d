"""The SQL that is read: Trino's dialect of sqlglot, with the whole of MATCH_RECOGNIZE and `WITHIN`.

sqlglot takes MATCH_RECOGNIZE for a clause of SELECT and knows a part of it; here it stands where the standard puts it,
after a table in FROM, also in a join. `RUNNING` and `FINAL` may stand before any aggregate, FIRST or LAST within an
expression. The pattern stays text (`pattern_text` reads it). The slash divides into a fraction, as in Spark and DuckDB.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.trino import Trino
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.trino import TrinoParser
from sqlglot.tokenizer_core import TokenType

from unerring.model import RuleError
from unerring.sql.limits import check_text, check_tree, check_words
from unerring.sql.source import Source


class RowPattern(exp.Expression):
    """`this MATCH_RECOGNIZE (…) AS alias`: a table in FROM."""

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "partition_by": False,
        "order_by": False,
        "measures": False,
        "rows": False,
        "skip": False,
        "pattern": True,
        "within": False,
        "subsets": False,
        "define": False,
        "alias": False,
        "joins": False,
    }


class AfterMatch(exp.Expression):
    """`kind` is one of plan.SkipKind's values; `this` names the variable."""

    arg_types: ClassVar[dict[str, bool]] = {"kind": True, "this": False}


class Subset(exp.Expression):
    """`SUBSET this = (expressions)`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": True}


class Semantics(exp.Expression):
    """`RUNNING this` or `FINAL this`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "final": True}


ROWS = (
    "ONE ROW PER MATCH",
    "ALL ROWS PER MATCH SHOW EMPTY MATCHES",
    "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
    "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
    "ALL ROWS PER MATCH",
)


_CLAUSES: Final = ("PATTERN", "ONE", "ALL", "AFTER")
"""The keywords that may follow a measure: they are not its name, unless AS precedes them."""


class RowPatternParser(TrinoParser):
    """Trino's parser, with MATCH_RECOGNIZE as a table."""

    QUERY_MODIFIER_PARSERS: ClassVar = {
        token: parse
        for token, parse in TrinoParser.QUERY_MODIFIER_PARSERS.items()
        if token is not TokenType.MATCH_RECOGNIZE
    }
    QUERY_MODIFIER_TOKENS: ClassVar = set(QUERY_MODIFIER_PARSERS)

    def _parse_table(self, *args: Any, **options: Any) -> exp.Expr | None:
        table = super()._parse_table(*args, **options)
        while table is not None and self._curr.token_type is TokenType.MATCH_RECOGNIZE:
            table = self._parse_row_pattern(table)
            if options.get("joins"):
                for join in self._parse_joins():
                    table.append("joins", join)
        return table

    def _parse_row_pattern(self, table: exp.Expr) -> exp.Expr:
        keyword = self._curr
        self._advance()
        self._match_l_paren()
        partition_by = self._parse_partition_by()
        order = self._parse_order()
        measures = self._parse_csv(self._parse_measure) if self._match_text_seq("MEASURES") else []
        rows = next((text for text in ROWS if self._match_text_seq(*text.split())), "")
        skip = self._parse_after_match()
        if not self._match_text_seq("PATTERN"):
            self.raise_error("PATTERN (...) is missing: MATCH_RECOGNIZE needs it, after AFTER MATCH SKIP")
        pattern = self._parse_pattern_text()
        within = None
        if self._match_text_seq("WITHIN"):
            within = self._parse_interval()
            if within is None:
                self.raise_error("WITHIN needs an INTERVAL, such as WITHIN INTERVAL '10' SECOND")
        subsets = self._parse_csv(self._parse_subset) if self._match_text_seq("SUBSET") else []
        define = self._parse_csv(self._parse_definition) if self._match_text_seq("DEFINE") else []
        if self._index >= len(self._tokens):
            self.raise_error("a ) is missing: MATCH_RECOGNIZE (...) or its PATTERN (...) is not closed", keyword)
        if self._curr.token_type is not TokenType.R_PAREN:
            self.raise_error(
                f"{self._curr.text!r} is not expected here; the clauses of MATCH_RECOGNIZE are, in this "
                "order, PARTITION BY, ORDER BY, MEASURES, ROW(S) PER MATCH, AFTER MATCH SKIP, PATTERN, WITHIN, SUBSET, "
                "DEFINE"
            )
        self._match_r_paren()
        node = RowPattern(
            this=table,
            partition_by=partition_by,
            order_by=order.expressions if order else [],
            measures=measures,
            rows=rows,
            skip=skip,
            pattern=pattern,
            within=within,
            subsets=subsets,
            define=define,
            alias=self._parse_table_alias(),
        )
        node.meta["start"] = keyword.start
        return node

    def _parse_measure(self) -> exp.Expr | None:
        expression = self._parse_expression()
        after = self._prev.text.upper() if isinstance(expression, exp.Alias) else ""
        forgotten = after in _CLAUSES and self._tokens[self._index - 2].token_type != TokenType.ALIAS
        if expression is not None and (forgotten or not isinstance(expression, exp.Alias)):
            self.raise_error("a measure needs a name: write MEASURES expression AS name")
        return expression

    def _parse_definition(self) -> exp.Expr | None:
        name = self._parse_id_var()
        if name is None or not self._match(TokenType.ALIAS):
            self.raise_error("DEFINE needs variable AS condition")
        return exp.Alias(this=self._parse_disjunction(), alias=name)

    def _parse_subset(self) -> exp.Expr | None:
        name = self._parse_id_var()
        if name is None or not self._match(TokenType.EQ):
            self.raise_error("SUBSET needs name = (variable, ...)")
        return Subset(this=name, expressions=self._parse_wrapped_id_vars())

    def _parse_after_match(self) -> exp.Expr | None:
        start = self._curr.start
        if not self._match_text_seq("AFTER", "MATCH"):
            return None
        if self._match_text_seq("SKIP", "PAST", "LAST", "ROW"):
            node = AfterMatch(kind="past last row")
        elif self._match_text_seq("SKIP", "TO", "NEXT", "ROW"):
            node = AfterMatch(kind="to next row")
        elif self._match_text_seq("SKIP", "TO"):
            # FIRST and LAST are words, not reserved ones: a variable may be called so.
            word = self._curr.text.upper()
            named = word in ("FIRST", "LAST") and self._next.text.upper() != "PATTERN"
            if named:
                self._advance()
            variable = self._parse_id_var(any_token=True)
            if variable is None:
                self.raise_error("AFTER MATCH SKIP TO needs NEXT ROW, FIRST variable, LAST variable or a variable")
            node = AfterMatch(kind="to first" if named and word == "FIRST" else "to last", this=variable)
        else:
            self.raise_error(
                "AFTER MATCH SKIP is followed by PAST LAST ROW, TO NEXT ROW, TO FIRST variable, TO LAST variable or "
                "TO variable"
            )
            return None
        node.meta["start"] = start
        return node

    def _parse_pattern_text(self) -> exp.Expr:
        if self._curr.token_type is not TokenType.L_PAREN:
            self.raise_error("PATTERN is followed by ( ... )")
        opening = self._curr
        depth = 0
        while self._curr:
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._curr.token_type, 0)
            closing = self._curr
            self._advance()
            if depth == 0:
                text = exp.Var(this=self.sql[opening.end + 1 : closing.start])
                text.meta["start"] = opening.end + 1
                return text
        self.raise_error("the pattern's ( is not closed", opening)
        return exp.Var(this="")

    def _parse_unary(self) -> exp.Expr | None:
        word = self._curr.text.upper()
        if word in ("RUNNING", "FINAL") and self._curr.token_type is not TokenType.IDENTIFIER:
            following = self._tokens[self._index + 2] if self._index + 2 < len(self._tokens) else None
            if following is not None and following.token_type is TokenType.L_PAREN and self._next.text.isidentifier():
                start = self._curr.start
                self._advance()
                node = Semantics(this=super()._parse_unary(), final=word == "FINAL")
                node.meta["start"] = start
                return node
        return super()._parse_unary()


class RowPatternSql(Trino):
    """The dialect. Generated text for other engines comes from their own dialects."""

    TYPED_DIVISION = False
    Parser = RowPatternParser


def parse_statement(source: Source) -> exp.Query:
    """The one query that the text is."""
    check_text(source)
    dialect = RowPatternSql()
    try:
        tokens = dialect.tokenize(source.text)
        check_words(source, tokens)
        trees = [tree for tree in dialect.parser().parse(tokens, source.text) if tree is not None]
    except (ParseError, TokenError) as error:
        raise RuleError(_sentence(source, error)) from None
    except RecursionError:  # a mixture of what `limits` bounds one by one, or a caller that is deep down itself
        raise source.wrong(0, "the statement is nested too deep; write its inner parts as WITH queries") from None
    if not trees:
        raise RuleError("the statement is empty; write SELECT ... FROM ... MATCH_RECOGNIZE (...)")
    if len(trees) > 1:
        raise RuleError("there are several statements; give one, without a semicolon in it")
    if not isinstance(trees[0], exp.Query):
        raise source.wrong(trees[0], f"{trees[0].key.upper()} is not a query; write SELECT ...")
    check_tree(source, trees[0])
    return trees[0]


def _sentence(source: Source, error: ParseError | TokenError) -> str:
    errors = error.errors if isinstance(error, ParseError) else []
    if not errors:
        opened = _unclosed(source.text)
        return f"{source.place(opened)}: a quote or a comment is not closed"
    first = errors[0]
    highlight = str(first.get("highlight") or "")
    # sqlglot's column is that of the token's last character.
    column = max(int(first.get("col") or 1) - len(highlight) + 1, 1)
    near = f" (at {highlight!r})" if highlight else ""
    return f"line {first.get('line')}, column {column}: {str(first.get('description')).rstrip('.')}{near}"


def _unclosed(text: str) -> int:
    """Where the quote or comment starts that has no end."""
    at = 0
    while at < len(text):
        token = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[^'\"/-]+|[/-]", re.DOTALL).match(
            text, at
        )
        if token is None or (token.group() == "/" and text.startswith("/*", at)):
            return at
        at = token.end()
    return 0
