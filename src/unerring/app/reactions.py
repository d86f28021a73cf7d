"""How an application reacts to situations: `app.on("Shortage").start(relieve)`.

One situation starts exactly one process: the instance's id is made of the situation's own, starting an id again is the
same start, and a position is committed only when the start is on a majority of the process nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from unerring.model import CallerError, ColumnType, ConfigError, Event, ProcessError, StreamSchema
from unerring.processes import Process, Reaction

if TYPE_CHECKING:
    from unerring.app.application import App

_SAMPLES: Final = {
    ColumnType.BOOL: True,
    ColumnType.INT: 1,
    ColumnType.FLOAT: 1.5,
    ColumnType.TEXT: "text",
    ColumnType.BYTES: b"bytes",
    ColumnType.TIME: 1,
}


class When:
    """`app.on(situation)`."""

    def __init__(self, app: App, schema: StreamSchema) -> None:
        self._app = app
        self._schema = schema

    def start(self, process: Process, **given: str) -> App:
        """Each situation starts one instance. `given`: variable = "column"; without it, columns and variables of the
        same name go together."""
        app, name = self._app, self._schema.name
        self._know(process)
        columns = {column.name: column for column in self._schema.columns}
        hidden = self._schema.secret
        given = given or {
            variable: variable for variable in process.types if variable in columns and variable not in hidden
        }
        if not given:
            example = f'{next(iter(process.types), "variable")}="{next(iter(columns))}"'
            raise ConfigError(
                f"app {app.name}: no column of {name} has the name of a variable of {process.name}; "
                f"name the columns, as in start({process.name}, {example})"
            )
        for variable, column in given.items():
            if column not in columns:
                raise ConfigError(f"app {app.name}: {name} has no column {column!r}; it has {', '.join(columns)}")
            if column in hidden:
                raise ConfigError(
                    f"app {app.name}: {name}.{column} is secret, and the state of a process is kept and shown; give "
                    f"{process.name} the key, and let the action that needs the value look it up"
                )
            self._check(process, variable, column, columns[column].type)
        reaction = Reaction(name, process.name, tuple(sorted(given.items())))
        if any((old.situation, old.process) == (name, process.name) for old in app.reactions):
            raise ConfigError(
                f"app {app.name}: {name} starts {process.name} already; a situation can start only one instance of it"
            )
        app.reactions.append(reaction)
        return app

    def _know(self, process: Process) -> None:
        app, name = self._app, process.name
        if not all(c.isalnum() or c in "-_" for c in name):  # positions are kept under it
            raise ConfigError(
                f"app {app.name}: situations cannot start {name!r}; name it with letters, digits, - and _"
            )
        current = app.processes.get(name)
        if current is None:
            app.versions.append(process)
        elif current is not process:
            if any(process is one for one in app.versions):
                raise ConfigError(
                    f"app {app.name}: situations start the version of {name} that is last in processes=; this is an "
                    "older one; start that one, or put this one last"
                )
            raise ConfigError(
                f"app {app.name} has two processes called {name}; rename one, or give both as versions of one in "
                "processes="
            )

    def _check(self, process: Process, variable: str, column: str, kind: ColumnType) -> None:
        if variable not in process.types:
            have = ", ".join(process.types)
            raise ConfigError(f"process {process.name} has no variable {variable!r}; it has {have}")
        try:
            process.fit(variable, _SAMPLES[kind])
        except ProcessError as error:
            raise ConfigError(
                f"{self._schema.name}.{column} ({kind.value}) does not fit {process.name}.{variable}: {error}"
            ) from None


def output_of(app: App, name: str) -> StreamSchema:
    """A stream that the app's rules make."""
    known = {schema.name: schema for schema in app.outputs}
    if name not in known:
        raise CallerError(f"app {app.name} has no situation {name!r}; it has {', '.join(known)}")
    return known[name]


def cause_of(app: App, instance: str) -> dict[str, Any] | None:
    """The situation that started an instance; None: no reaction of this app did."""
    for reaction in app.reactions:
        stamp = reaction.stamp_of(instance)
        if stamp is not None:
            return {"stream": reaction.situation, "time": stamp.time, "ordinal": stamp.ordinal}
    return None


def started_by(app: App, situation: Event) -> list[dict[str, str]]:
    """The instances that a situation starts."""
    reactions = [reaction for reaction in app.reactions if reaction.situation == situation.stream]
    return [{"process": one.process, "instance": one.instance(situation)} for one in reactions]
