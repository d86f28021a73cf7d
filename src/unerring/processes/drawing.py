"""The graph as SVG: layers from left to right, actions as boxes, control vertices as diamonds."""

from __future__ import annotations

from xml.sax.saxutils import escape

from unerring.processes.build import Process
from unerring.processes.graph import Graph, Kind, Vertex

_SIGNS = {Kind.FIRST_SPLIT: "◷", Kind.LOOP: "↻", Kind.AGAIN: "↺", Kind.GATHER: "≡", Kind.WITHIN: "◔"}
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y = 132, 44, 46, 22


def draw(process: Process) -> str:
    """One SVG document."""
    graph = process.graph
    places = _places(graph)
    width = max(x for x, _ in places.values()) + _WIDTH + 2 * _GAP_X
    height = max(y for _, y in places.values()) + _HEIGHT + _GAP_Y
    parts = [_edge(graph, number, places, width) for number in range(len(graph.edges))]
    parts += [_vertex(vertex, *places[vertex.name]) for vertex in graph.vertices]
    parts += [_back(places[end], places[head]) for head, end in graph.ends.items()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="process {escape(graph.name)}">\n'
        '<defs><marker id="to" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _places(graph: Graph) -> dict[str, tuple[int, int]]:
    layer: dict[str, int] = {}
    rows: dict[int, int] = {}
    places = {}
    for name in graph.order:
        sources = [graph.edges[number].source for number in graph.incoming[name]]
        layer[name] = max([layer[source] + 1 for source in sources if source], default=0)
        row = rows.get(layer[name], 0)
        rows[layer[name]] = row + 1
        places[name] = (_GAP_X + layer[name] * (_WIDTH + _GAP_X), _GAP_Y + row * (_HEIGHT + _GAP_Y))
    return places


def _vertex(vertex: Vertex, x: int, y: int) -> str:
    middle_x, middle_y = x + _WIDTH // 2, y + _HEIGHT // 2
    if not vertex.acts:
        corners = f"{middle_x},{y} {middle_x + 30},{middle_y} {middle_x},{y + _HEIGHT} {middle_x - 30},{middle_y}"
        sign = _SIGNS.get(vertex.kind, "+" if vertex.kind.startswith("and") else "×")
        return (
            f'<polygon points="{corners}" fill="#fff" stroke="#555"><title>{escape(vertex.name)}</title></polygon>'
            f'<text x="{middle_x}" y="{middle_y + 5}" text-anchor="middle" font-size="16">{sign}</text>'
        )
    fill = "#fde2e2" if vertex.final else "#fdf1d6" if vertex.write else "#e8eefc" if vertex.waits else "#e6f4ea"
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="7" fill="{fill}" stroke="#555"/>'
        f'<text x="{middle_x}" y="{middle_y - 1}" text-anchor="middle">{escape(vertex.name)}</text>'
        f'<text x="{middle_x}" y="{middle_y + 14}" text-anchor="middle" fill="#666" font-size="10">'
        f"{escape(str(vertex.kind) if vertex.waits else vertex.service)}</text>"
    )


def _edge(graph: Graph, number: int, places: dict[str, tuple[int, int]], width: int) -> str:
    edge = graph.edges[number]
    from_x, from_y = places[edge.source] if edge.source else (-_WIDTH, places[edge.target][1] if edge.target else 0)
    to_x, to_y = places[edge.target] if edge.target else (width - 6, from_y)
    x1, y1 = from_x + (_WIDTH // 2 + 30 if _is_control(graph, edge.source) else _WIDTH), from_y + _HEIGHT // 2
    x2, y2 = to_x + (_WIDTH // 2 - 30 if _is_control(graph, edge.target) else 0), to_y + _HEIGHT // 2
    x1 = max(x1, 4)
    bend = (x1 + x2) // 2
    line = f'<path d="M{x1} {y1}C{bend} {y1} {bend} {y2} {x2} {y2}" fill="none" stroke="#555" marker-end="url(#to)"/>'
    if edge.label and _is_control(graph, edge.source):
        line += f'<text x="{x1 + 4}" y="{(y1 + y2) // 2 - 4}" fill="#666" font-size="10">{escape(edge.label)}</text>'
    return line


def _back(end: tuple[int, int], head: tuple[int, int]) -> str:
    """The way from the end of a round to the beginning of the next one, above the others."""
    x1, x2 = end[0] + _WIDTH // 2, head[0] + _WIDTH // 2
    top = min(end[1], head[1]) - _GAP_Y + 4
    way = f"M{x1} {end[1]}C{x1} {top} {x2} {top} {x2} {head[1]}"
    return f'<path d="{way}" fill="none" stroke="#555" stroke-dasharray="5 3" marker-end="url(#to)"/>'


def _is_control(graph: Graph, name: str) -> bool:
    return bool(name) and not graph.by_name[name].acts
