"""A whole statement: each MATCH_RECOGNIZE becomes a table that an SQL engine can read, and the rest is that engine's.

The engine (DuckDB, Spark) describes and orders the input of each MATCH_RECOGNIZE, and runs the statement that is left.
Inner ones come first, those in WITH before what reads them, so that the input of one may be the output of another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, Protocol

from sqlglot import exp

from unerring.model import ColumnType
from unerring.sql.dialect import RowPattern, parse_statement
from unerring.sql.names import columns_of
from unerring.sql.recognition import Recognition, compile_recognition
from unerring.sql.source import Source, offset_of

TABLE: Final = "unerring_match_"
"""The tables that MATCH_RECOGNIZE makes are called this and a number."""


class SqlEngine(Protocol):
    """The engine of the SQL around MATCH_RECOGNIZE."""

    @property
    def dialect(self) -> str:
        """sqlglot's name for its SQL."""
        ...

    def describe(self, query: str) -> Sequence[tuple[str, ColumnType | None, str]]:
        """The columns of a query: name, type in plans (None: not readable), and what the engine calls the type."""
        ...

    def recognise(self, query: str, recognition: Recognition, table: str) -> None:
        """Run a MATCH_RECOGNIZE over the rows of a query; from now on `table` names the result."""
        ...


class Rewriting:
    """A statement on its way to the engine."""

    def __init__(self, text: str) -> None:
        self.source = Source(text)
        self.tree: exp.Expr = parse_statement(self.source)
        self._measures: list[tuple[str, int]] = []
        """The names that MATCH_RECOGNIZE gives its columns, and where they stand."""

    def recognise_all(self, engine: SqlEngine) -> list[Recognition]:
        """Run every MATCH_RECOGNIZE; afterwards the tree is plain SQL."""
        recognitions: list[Recognition] = []
        for number, node in enumerate(list(_inner_first(self.tree)), 1):
            query = self._input_query(node, node.this).sql(dialect=engine.dialect)
            columns = columns_of(engine.describe(query), self._twice(node, engine))
            recognition = compile_recognition(node, columns, self.source, f"match{number}")
            table = f"{TABLE}{number}"
            engine.recognise(query, recognition, table)
            self._measures += [
                (measure.alias, offset_of(measure.args["alias"])) for measure in node.args.get("measures") or []
            ]
            self._replace(node, table)
            recognitions.append(recognition)
        return recognitions

    def sql(self, dialect: str) -> str:
        """The rest of the statement, in an engine's dialect."""
        return self.tree.sql(dialect=dialect)

    def place_of(self, names: Collection[str]) -> str | None:
        """Where one of these names (in small letters) first stands."""
        places = [
            node.meta["start"]
            for node in self.tree.find_all(exp.Identifier, exp.Func)
            if node.meta.get("start") is not None and (node.name or node.key).lower() in names
        ]
        return self.source.place(min(places)) if places else None

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse an answer with two columns of one name: its rows could not be told apart by name."""
        for name in names:
            if names.count(name) > 1:
                raise self.source.wrong(
                    self._second(name), f"two columns are called {name!r}; give one of them another name with AS"
                )

    def _second(self, name: str) -> int:
        """Where a name stands for the second time: in SELECT, or as a measure."""
        selected = self.tree.selects if isinstance(self.tree, exp.Query) else []
        offsets = [offset_of(item) for item in selected if item.alias_or_name.lower() == name.lower()]
        offsets += [offset for measure, offset in self._measures if measure.lower() == name.lower()]
        return sorted(offsets)[:2][-1] if offsets else offset_of(self.tree)

    def _twice(self, node: RowPattern, engine: SqlEngine) -> set[str]:
        """The names of several columns of a subquery: an engine may rename them, but who means one must say which."""
        if not isinstance(node.this, exp.Subquery) or not isinstance(node.this.this, exp.Query):
            return set()
        inner = self._input_query(node, node.this.this)
        names = [name.lower() for name, _, _ in engine.describe(inner.sql(dialect=engine.dialect))]
        return {name for name in names if names.count(name) > 1}

    def _input_query(self, node: RowPattern, read: exp.Expr) -> exp.Expr:
        """The input of MATCH_RECOGNIZE, a table or a query, with all names of WITH that it can see."""
        query: Any = exp.select("*").from_(read.copy()) if read is node.this else read.copy()
        below: exp.Expr = node
        above = node.parent
        while above is not None:
            clause = above.args.get("with_")
            if isinstance(clause, exp.With) and above is not below:
                visible = clause.expressions
                own = next((cte for cte in visible if _is_within(node, cte)), None)
                if own is not None:
                    if clause.args.get("recursive"):
                        raise self.source.wrong(node, "MATCH_RECOGNIZE is not allowed in a recursive WITH")
                    visible = visible[: visible.index(own)]
                if visible:
                    if query.args.get("with_"):
                        query = exp.select("*").from_(query.subquery("visible"))
                    names = [cte.copy() for cte in visible]
                    query.set("with_", exp.With(expressions=names, recursive=clause.args.get("recursive")))
            below, above = above, above.parent
        selected: exp.Expr = query
        return selected

    def _replace(self, node: RowPattern, table: str) -> None:
        made = exp.Table(this=exp.to_identifier(table, quoted=True), alias=node.args.get("alias"))
        for join in node.args.get("joins") or []:
            made.append("joins", join)
        node.replace(made)


def _inner_first(tree: exp.Expr) -> Iterator[RowPattern]:
    """Without recursion: a chain of ANDs is as deep as it is long."""
    waiting: list[tuple[exp.Expr, bool]] = [(tree, False)]
    while waiting:
        node, seen = waiting.pop()
        if not seen:
            clause = node.args.get("with_")
            others = [part for part in node.iter_expressions() if part is not clause]
            children = [clause, *others] if isinstance(clause, exp.Expr) else others
            waiting += [(node, True), *((child, False) for child in reversed(children))]
        elif isinstance(node, RowPattern):
            yield node


def _is_within(node: exp.Expr, ancestor: exp.Expr) -> bool:
    above: exp.Expr | None = node
    while above is not None and above is not ancestor:
        above = above.parent
    return above is ancestor
