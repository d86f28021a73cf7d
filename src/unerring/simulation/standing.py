"""Where every machine of a correlation scenario stands, for the report of one that did not get to the end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from unerring.simulation.world import World


def standing(world: World) -> Iterable[str]:
    """A line for each node."""
    for name, node in world.nodes.items():
        machine: Any = node.machine
        if machine is None:
            yield f"{name}: {node.state.name}"
            continue
        ins = getattr(machine, "intake", None)
        outs = getattr(machine, "outgoing", None)
        phase = getattr(machine, "phase", None)
        line = f"{name}: {'' if phase is None else phase.name}"
        if ins is not None:
            line += " in " + ", ".join(
                f"{s} {tuple(i.last)} number {i.count} credit {ins.credit(s)} watermark {i.watermark}"
                for s, i in ins.streams.items()
            )
        if outs is not None:
            line += f" {'leads' if outs.leading else ''} out " + ", ".join(
                f"{s} {q.mark_count}-{q.count} {q.watermark}" for s, q in outs.queues.items()
            )
        yield line
