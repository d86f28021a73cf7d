"""Whether a process traces, and how much: OpenTelemetry's own variables say so.

| variable | says |
|---|---|
| `OTEL_TRACES_EXPORTER` | `otlp`: spans are sent; without it nothing is traced, and nothing is loaded |
| `OTEL_TRACES_SAMPLER_ARG` | the share of traces that are kept, with a sampler `…traceidratio` |
| `OTEL_METRICS_EXPORTER` | `otlp`: the metrics of a run, or of a process node without one, are sent, too |
| `OTEL_RESOURCE_ATTRIBUTES` | `service.namespace=NAME`: what separates the traces of two runs with one receiver |
| | `unerring.run=NAME`: what separates, in common traces, the spans of two runs that take the same events |

Where to and how (`OTEL_EXPORTER_OTLP_ENDPOINT` and others) is read by OpenTelemetry's exporters.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Final

import msgspec

from unerring.model import ConfigError, require

EXPORTER: Final = "OTEL_TRACES_EXPORTER"
METRICS: Final = "OTEL_METRICS_EXPORTER"
SAMPLER: Final = "OTEL_TRACES_SAMPLER"
RATE: Final = "OTEL_TRACES_SAMPLER_ARG"
ATTRIBUTES: Final = "OTEL_RESOURCE_ATTRIBUTES"
NAMESPACE: Final = "unerring"
"""The namespace of whoever names none."""
OTLP: Final = "otlp"
_NAMESPACE: Final = "service.namespace"
_RUN: Final = "unerring.run"


class Settings(msgspec.Struct, frozen=True):
    """What the variables of a process ask for."""

    rate: float = 0.0
    """The share of traces that are kept; 0: nothing is traced."""
    namespace: str = NAMESPACE
    metrics: bool = False
    run: str = ""
    """The name of the run, where several take the same events."""


def settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the variables; ConfigError where one is wrong."""
    variables = os.environ if environment is None else environment
    if variables.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return Settings()
    rate = _rate(variables) if OTLP in _list(variables.get(EXPORTER, "")) else 0.0
    about = _attributes(variables)
    return Settings(
        rate, about.get(_NAMESPACE) or NAMESPACE, OTLP in _list(variables.get(METRICS, "")), about.get(_RUN, "")
    )


def ask_for(rate: float, environment: MutableMapping[str, str] | None = None) -> None:
    """Set the variables, for this process and all that it starts."""
    if not 0 <= rate <= 1:
        raise ConfigError(f"--trace {rate:g}: it is the share of traces that are kept; give a number from 0 to 1")
    if rate:
        require("opentelemetry.sdk")
    variables = os.environ if environment is None else environment
    variables[EXPORTER] = OTLP if rate else "none"
    variables[SAMPLER] = "traceidratio"
    variables[RATE] = f"{rate:.17g}"


@contextmanager
def untold() -> Iterator[None]:
    """What is done meanwhile, here and by processes that are started now, is on no event's way: nothing is traced."""
    before = {name: os.environ.get(name) for name in (EXPORTER, SAMPLER, RATE)}
    ask_for(0.0)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _rate(variables: Mapping[str, str]) -> float:
    sampler = variables.get(SAMPLER, "parentbased_always_on")
    if sampler.endswith("always_off"):
        return 0.0
    if not sampler.endswith("traceidratio"):
        return 1.0
    text = variables.get(RATE, "1")
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate <= 1:
        raise ConfigError(f"{RATE} is {text!r}; it is the share of traces that are kept, a number from 0 to 1")
    return rate


def named(run: str) -> dict[str, str]:
    """What a run of this name has in its environment, beside others that take the same events."""
    about = {**_attributes(os.environ), _RUN: run}
    return {ATTRIBUTES: ",".join(f"{name}={value}" for name, value in about.items())}


def _attributes(variables: Mapping[str, str]) -> dict[str, str]:
    pairs = (part.partition("=") for part in variables.get(ATTRIBUTES, "").split(","))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]
