"""Which extra brings which library. The core installs none of these: whoever needs one asks here first, so that a
missing extra is one sentence with the command that installs it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from unerring.model.errors import MissingExtra

EXTRAS: Final[dict[str, tuple[str, str]]] = {
    # what is imported: the extra that brings it, and what needs it
    "confluent_kafka": ("kafka", "Kafka"),
    "deltalake": ("delta", "A Delta table"),
    "duckdb": ("duckdb", "SQL on files"),
    "fastavro": ("kafka", "Avro"),
    "google.protobuf": ("kafka", "Protobuf"),
    "grpc": ("connect", "Spark Connect"),
    "matplotlib": ("evaluation", "Drawing figures"),
    "nats": ("nats", "NATS"),
    "obstore": ("s3", "An object store (s3://, gs://, az://, memory://)"),
    "openlineage.client": ("lineage", "OpenLineage"),
    "opentelemetry.sdk": ("otel", "OpenTelemetry"),
    "pandas": ("spark", "Spark"),
    "psycopg": ("postgres", "PostgreSQL"),
    "pyiceberg": ("iceberg", "An Iceberg table"),
    "pyspark": ("spark", "Spark"),
    "redis": ("redis", "Redis"),
    "zmq": ("zmq", "ZeroMQ"),
}


def require(library: str, instead: str = "") -> None:
    """Raise MissingExtra unless `library`, one of EXTRAS, can be imported. Nothing is imported. `instead`: what can be
    done without it."""
    if not _is_there(library):
        raise _missing(library, instead)


def missing_extra(error: ImportError) -> MissingExtra | None:
    """An import that failed as a missing extra; None if it is of something else."""
    name = f"{error.name}."
    for library in EXTRAS:
        if (name.startswith(f"{library}.") or library.startswith(name)) and not _is_there(library):
            return _missing(library, "")
    return None


def _missing(library: str, instead: str) -> MissingExtra:
    extra, what = EXTRAS[library]
    return MissingExtra(
        f"{what} needs {library}, which is not installed; install it with: pip install 'unerring[{extra}]'"
        + (f"; or {instead}" if instead else "")
    )


def _is_there(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except (ImportError, ValueError):  # the package that it is in is absent; or it is barred in sys.modules
        return False
