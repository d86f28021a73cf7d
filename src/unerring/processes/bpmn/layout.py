"""Where the shapes of a diagram are: layers from left to right, what is inside a sub-process first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

GAP_X: Final = 60
GAP_Y: Final = 40
SIZES: Final = {"event": (36, 36), "gateway": (50, 50), "task": (100, 80)}
_EDGE: Final = 18


class Box(msgspec.Struct):
    """A shape: its upper left corner and its size."""

    x: int = 0
    y: int = 0
    width: int = 0
    height: int = 0

    @property
    def middle(self) -> tuple[int, int]:
        return self.x + self.width // 2, self.y + self.height // 2


class Placed(msgspec.Struct):
    """What is to be placed: a shape, what it contains, what is on its boundary, and what undoes it."""

    id: str
    size: str
    inner: list[Placed] = []
    boundary: list[Placed] = []
    undo: Placed | None = None


def placed(shapes: Sequence[Placed], flows: Sequence[tuple[str, str]]) -> dict[str, Box]:
    """The boxes of all shapes; flows that lead back are left out of `flows`."""
    boxes: dict[str, Box] = {}
    _area(shapes, flows, boxes)
    _move(shapes, boxes, GAP_X, GAP_Y)
    return boxes


def _area(shapes: Sequence[Placed], flows: Sequence[tuple[str, str]], boxes: dict[str, Box]) -> tuple[int, int]:
    """Places shapes beside each other, from 0, and answers with what they take."""
    own = {each.id: each for each in shapes}
    hosts = {event.id: each.id for each in shapes for event in each.boundary}
    layer = dict.fromkeys(own, 0)
    before: dict[str, list[str]] = {}
    for source, target in flows:
        source = hosts.get(source, source)
        if source in own and target in own:
            before.setdefault(target, []).append(source)
    for _ in shapes:  # the flows have no cycle: after so many turns every layer is known
        moved = False
        for target, sources in before.items():
            wanted = max(layer[source] + 1 for source in sources)
            moved, layer[target] = moved or wanted > layer[target], max(wanted, layer[target])
        if not moved:
            break
    columns: list[list[Placed]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for shape in shapes:
        columns[layer[shape.id]].append(shape)
    x = height = 0
    for column in columns:
        sizes = [_size(shape, flows, boxes) for shape in column]
        width = max((size[0] for size in sizes), default=0)
        y = 0
        for shape, (wide, high) in zip(column, sizes, strict=True):
            boxes[shape.id] = Box(x + (width - wide) // 2, y, wide, high)
            y += high + GAP_Y + (GAP_Y if shape.boundary else 0)
            if shape.undo is not None:
                boxes[shape.undo.id] = Box(x + (width - wide) // 2, y, *SIZES["task"])
                y += SIZES["task"][1] + GAP_Y
            _hang(shape, boxes)
        height = max(height, y - GAP_Y)
        x += width + GAP_X
    return x - GAP_X, height


def _size(shape: Placed, flows: Sequence[tuple[str, str]], boxes: dict[str, Box]) -> tuple[int, int]:
    if not shape.inner:
        return SIZES[shape.size]
    width, height = _area(shape.inner, flows, boxes)
    return max(width + 2 * GAP_Y, SIZES["task"][0]), max(height + 2 * GAP_Y, SIZES["task"][1])


def _hang(shape: Placed, boxes: dict[str, Box]) -> None:
    """Events on the lower edge of their activity."""
    host = boxes[shape.id]
    for number, event in enumerate(shape.boundary):
        boxes[event.id] = Box(host.x + 8 + number * 44, host.y + host.height - _EDGE, *SIZES["event"])


def _move(shapes: Sequence[Placed], boxes: dict[str, Box], x: int, y: int) -> None:
    for shape in shapes:
        for each in (shape, *shape.boundary, *([shape.undo] if shape.undo else [])):
            boxes[each.id].x += x
            boxes[each.id].y += y
        _move(shape.inner, boxes, boxes[shape.id].x + GAP_Y, boxes[shape.id].y + GAP_Y)


def way(source: Box, target: Box, hangs: bool) -> list[tuple[int, int]]:
    """The corners of a flow: right to left, from below for what hangs on a boundary, above all for what leads back."""
    (from_x, from_y), (to_x, to_y) = source.middle, target.middle
    if hangs:
        low = max(to_y, source.y + source.height + 20)
        return [
            (from_x, source.y + source.height),
            (from_x, low),
            (target.x - 20, low),
            (target.x - 20, to_y),
            (target.x, to_y),
        ]
    if target.x < source.x + source.width:
        top = min(source.y, target.y) - 20
        return [(from_x, source.y), (from_x, top), (to_x, top), (to_x, target.y)]
    if from_y == to_y:
        return [(source.x + source.width, from_y), (target.x, to_y)]
    bend = target.x - GAP_X // 2
    return [(source.x + source.width, from_y), (bend, from_y), (bend, to_y), (target.x, to_y)]


def spans(boxes: Mapping[str, Box]) -> tuple[int, int]:
    """The width and height of a diagram."""
    return max(box.x + box.width for box in boxes.values()), max(box.y + box.height for box in boxes.values())
