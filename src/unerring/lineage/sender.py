"""The thread that sends lineage events, through OpenLineage's own client.

A receiver that is down, slow or wrong never hurts a run: at most `WAITING_MAX` events wait, later ones are dropped, and
a process that ends waits for them for `END_S` at most. The first time that something is lost, a warning says so.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from unerring.lineage.datasets import Dataset, merged
from unerring.model import require

if TYPE_CHECKING:
    from unerring.lineage.runs import Job, Moment

WAITING_MAX: Final = 1_000
END_S: Final = 5.0
"""How long a process that ends waits for what is not sent yet."""
ERROR_MAX: Final = 2_000
"""Characters of an error."""
PRODUCER: Final = "urn:unerring"
"""Who makes the events."""
_log: Final = logging.getLogger("unerring.lineage")


class Sender:
    """One for a process. Its thread and the client are made with the first event."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[Moment] = queue.Queue(WAITING_MAX)
        self._begin = threading.Lock()
        self._thread: threading.Thread | None = None
        self._warned = False

    def send(self, moment: Moment) -> None:
        """Take an event to send; never waits."""
        with self._begin:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lineage", daemon=True)
                self._thread.start()
                atexit.register(self.finish)
        try:
            self._waiting.put_nowait(moment)
        except queue.Full:
            self._warn(f"{WAITING_MAX} events wait for their receiver")

    def finish(self, within_s: float = END_S) -> bool:
        """Wait until everything is sent or lost; whether it was in time."""
        end = time.monotonic() + within_s
        with self._waiting.all_tasks_done:
            while self._waiting.unfinished_tasks:
                if (rest := end - time.monotonic()) <= 0:
                    self._warn("the receiver did not take them before the end of the process")
                    return False
                self._waiting.all_tasks_done.wait(rest)
        return True

    def _run(self) -> None:
        client: Any = None
        while True:
            moment = self._waiting.get()
            try:
                client = client or _client()
                client.emit(event_of(moment))
            except Exception as error:  # whatever it is, the run goes on
                self._warn(f"{type(error).__name__}: {error}")
            finally:
                self._waiting.task_done()

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning("unerring: lineage events are lost (%s); nothing else is affected", why)


_sender = Sender()


def send(moment: Moment) -> None:
    """Hand an event to the process's sender."""
    _sender.send(moment)


def _client() -> Any:
    logging.getLogger("openlineage").addHandler(logging.NullHandler())  # one warning is enough, and it is ours
    require("openlineage.client")
    from openlineage.client import OpenLineageClient

    return OpenLineageClient()


def event_of(moment: Moment) -> Any:
    """A moment of a run as OpenLineage's event."""
    from openlineage.client.event_v2 import InputDataset, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    counted: dict[str, Any] = {}
    if moment.rows is not None:
        counted["outputStatistics"] = statistics.OutputStatisticsOutputDatasetFacet(
            rowCount=moment.rows, producer=PRODUCER
        )
    return RunEvent(
        eventType=RunState[moment.state],
        eventTime=moment.time,
        run=Run(moment.run, _run_facets(moment)),
        job=_job_of(moment.job),
        inputs=[InputDataset(one.namespace, one.name, facets=_facets(one)) for one in merged(moment.flow.inputs)],
        outputs=[
            OutputDataset(one.namespace, one.name, facets=_facets(one), outputFacets=counted)
            for one in merged(moment.flow.outputs)
        ],
        producer=PRODUCER,
    )


def _run_facets(moment: Moment) -> dict[str, Any]:
    from openlineage.client.facet_v2 import error_message_run, parent_run, processing_engine_run

    from unerring import __version__

    facets: dict[str, Any] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=__version__, name=moment.job.engine, producer=PRODUCER
        )
    }
    if moment.parent is not None:
        run, job = moment.parent
        facets["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(runId=run), job=parent_run.Job(job.namespace, job.name), producer=PRODUCER
        )
    if moment.error:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=moment.error[:ERROR_MAX], programmingLanguage="python", producer=PRODUCER
        )
    return facets


def _job_of(job: Job) -> Any:
    from openlineage.client.event_v2 import Job as LineageJob
    from openlineage.client.facet_v2 import job_type_job

    kind = job_type_job.JobTypeJobFacet(
        processingType="STREAMING" if job.streaming else "BATCH",
        integration="UNERRING",
        jobType=job.kind.upper(),
        producer=PRODUCER,
    )
    return LineageJob(job.namespace, job.name, {"jobType": kind})


def _facets(dataset: Dataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import schema_dataset

    if not dataset.columns:
        return {}
    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in dataset.columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)}
