"""The lineage of a run and of its sinks: the run is a job, and each rule and each sink is a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from unerring.lineage import Flow, begin, columns_of, dataset_at, ending, stream_dataset, traced

if TYPE_CHECKING:
    from unerring.app.application import App
    from unerring.app.place import Place
    from unerring.lineage import TracedRun
    from unerring.rules import Plan
    from unerring.sinks import Delivery


@contextmanager
def traced_run(app: App, place: Place, engine: str, streaming: bool) -> Iterator[None]:
    """The run of an app, which is this block."""
    with traced("run", app.name, Flow, engine=engine, streaming=streaming) as run:
        plans = app.plans if run.is_on else ()
        rules = [
            begin("detect", f"{app.name}.{plan.name}", partial(_rule, plan, place), engine=engine, streaming=streaming)
            for plan in plans
        ]
        with ending(rules):
            yield


@contextmanager
def traced_delivery(work: Delivery, app: str, streaming: bool, parent: TracedRun | None = None) -> Iterator[None]:
    """A sink at work, which is this block."""
    name = f"{app}.deliver.{work.record.name}" if app else f"deliver.{work.record.name}"
    before = work.progress.delivered
    with traced("deliver", name, partial(_sink, work), streaming=streaming, parent=parent) as run:
        try:
            yield
        finally:
            run.rows = work.progress.delivered - before


def _rule(plan: Plan, place: Place) -> Flow:
    store = place.log.store
    return Flow(
        tuple(stream_dataset(store, source.schema) for source in plan.inputs),
        tuple(stream_dataset(store, schema) for schema in plan.outputs),
    )


def _sink(work: Delivery) -> Flow:
    chain = work.chain
    return Flow(
        (stream_dataset(chain.store, chain.schema),),
        (dataset_at(work.record.to, columns_of(chain.schema)),),
    )
