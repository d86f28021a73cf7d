"""A graph under construction: who dominates whom, loops found by their back edges, ends and joins put in where BPMN
leaves them out, and the proof that branches which were split are joined in the same way.

An edge with the source "" comes from the start of its scope, one with the target "" ends there. A target that begins
with OUT leaves the scope by an event on its boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from unerring.processes.graph import Kind, Vertex

OUT: Final = "!"
_SPLITS: Final = (Kind.XOR_SPLIT, Kind.AND_SPLIT, Kind.FIRST_SPLIT, Kind.WITHIN)
_JOINS: Final = (Kind.XOR_JOIN, Kind.AND_JOIN)
_EXCLUSIVE: Final = (Kind.XOR_SPLIT, Kind.FIRST_SPLIT, Kind.WITHIN, Kind.XOR_JOIN)


class Line(msgspec.Struct):
    """An edge that may still be moved."""

    source: str
    target: str
    label: str = ""
    at: tuple[int, ...] = ()
    terminates: str = ""
    """The end event that ends all other branches too, if it leads to one."""


class Draft:
    """Vertices by name in their order, and edges."""

    def __init__(self) -> None:
        self.vertices: dict[str, Vertex] = {}
        self.at: dict[str, tuple[int, ...]] = {}
        self.lines: list[Line] = []
        self.undecided: dict[str, None] = {}
        """Joins of inclusive gateways: AND or XOR, as the split before them is."""

    def add(self, vertex: Vertex, at: tuple[int, ...] = ()) -> str:
        self.vertices[vertex.name] = vertex
        self.at[vertex.name] = at
        return vertex.name

    def link(self, source: str, target: str, label: str = "", at: tuple[int, ...] = ()) -> Line:
        line = Line(source, target, label, at)
        self.lines.append(line)
        return line

    def take(self, other: Draft) -> None:
        self.vertices |= other.vertices
        self.at |= other.at
        self.lines += other.lines
        self.undecided |= other.undecided

    def into(self, name: str) -> list[Line]:
        return [line for line in self.lines if line.target == name]

    def out_of(self, name: str) -> list[Line]:
        return [line for line in self.lines if line.source == name]

    def insert(self, vertex: Vertex, lines: Iterable[Line], at: tuple[int, ...] = ()) -> str:
        """A vertex in front of what these edges lead to: all of the same target."""
        name = self.add(vertex, at)
        lines = list(lines)
        target = lines[0].target
        for line in lines:
            line.target = name
        self.link(name, target, at=at)
        return name

    def replace(self, name: str, **fields: object) -> None:
        self.vertices[name] = msgspec.structs.replace(self.vertices[name], **fields)

    def kind(self, name: str) -> Kind | None:
        return self.vertices[name].kind if name in self.vertices else None

    def join_implicitly(self, fresh: Callable[[str], str]) -> None:
        """What several flows lead to is executed for each of them: an exclusive join in front of it."""
        for name in list(self.vertices):
            comes = self.into(name)
            if len(comes) > 1 and self.kind(name) not in _JOINS:
                self.insert(Vertex(fresh(f"{name}-join"), Kind.XOR_JOIN), comes)

    def unreached(self) -> list[str]:
        """Vertices that no way from the start leads to."""
        reached = self._ways(forward=True)
        return [name for name in self.vertices if name not in reached]

    def _ways(self, forward: bool) -> dict[str, None]:
        following: dict[str, list[str]] = {}
        for line in self.lines:
            source, target = (line.source, line.target) if forward else (line.target, line.source)
            following.setdefault(source, []).append(target)
        seen: dict[str, None] = {"": None}
        todo = [""] if forward else ["", *(line.target for line in self.lines if line.target.startswith(OUT))]
        while todo:
            for target in following.get(todo.pop(), ()):
                if target and target not in seen:
                    seen[target] = None
                    todo.append(target)
        return seen

    def dominators(self, backwards: bool = False) -> dict[str, int]:
        """For each vertex, as bits by the order of vertices, those that every way to it (from it) leads through."""
        names = list(self.vertices)
        bit = {name: 1 << number for number, name in enumerate(names)}
        before: dict[str, list[str]] = {name: [] for name in names}
        for line in self.lines:
            source, target = (line.target, line.source) if backwards else (line.source, line.target)
            if target in before:
                before[target].append(source)
        every = (1 << len(names)) - 1
        known = dict.fromkeys(names, every)
        changed = True
        order = names[::-1] if backwards else names
        while changed:
            changed = False
            for name in order:
                here = every
                for source in before[name]:
                    here &= known[source] if source in bit else 0
                here = (here if before[name] else 0) | bit[name]
                if here != known[name]:
                    known[name] = here
                    changed = True
        return known

    def nearest(self, names: Iterable[str], backwards: bool = False) -> dict[str, str]:
        """For each, the vertex that every way to it (from it) leads through last (first), itself left out; "" if there
        is none."""
        known = self.dominators(backwards)
        numbered = list(enumerate(self.vertices))
        found = {}
        for name in names:
            over = [other for number, other in numbered if known[name] >> number & 1 and other != name]
            found[name] = max(over, key=lambda other: known[other].bit_count(), default="")
        return found

    def last_before(self, join: str, first: str) -> list[Line]:
        """The edges to a join on the ways from a vertex."""
        following: dict[str, list[Line]] = {}
        for line in self.lines:
            following.setdefault(line.source, []).append(line)
        seen, todo, last = {first: None}, [first], []
        while todo:
            for line in following.get(todo.pop(), ()):
                if line.target == join:
                    last.append(line)
                elif line.target not in seen:
                    seen[line.target] = None
                    todo.append(line.target)
        return last

    def order(self) -> list[str]:
        """The vertices so that each comes behind those that lead to it; without loops."""
        waiting = dict.fromkeys(self.vertices, 0)
        following: dict[str, list[str]] = {}
        for line in self.lines:
            if line.source and line.target in waiting:
                waiting[line.target] += 1
                following.setdefault(line.source, []).append(line.target)
        ready = [name for name, count in waiting.items() if not count]
        ordered = []
        while ready:
            name = ready.pop(0)
            ordered.append(name)
            for target in following.get(name, ()):
                waiting[target] -= 1
                if not waiting[target]:
                    ready.append(target)
        return ordered

    # ---- loops -------------------------------------------------------------------------------------------------

    def smallest_loop(self) -> tuple[str, list[str]] | None:
        """The beginning and the vertices of a loop that has none in it. ValueError: a cycle with two beginnings."""
        known = self.dominators()
        bit = {name: 1 << number for number, name in enumerate(self.vertices)}
        loops: dict[str, dict[str, None]] = {}
        before: dict[str, list[str]] = {}
        for line in self.lines:
            before.setdefault(line.target, []).append(line.source)
        for line in self.lines:
            if line.target in bit and line.source in bit and known[line.source] & bit[line.target]:
                body = loops.setdefault(line.target, {line.target: None})
                todo = [line.source]
                while todo:
                    name = todo.pop()
                    if name not in body:
                        body[name] = None
                        todo += [source for source in before.get(name, ()) if source]
        if not loops:
            ordered = dict.fromkeys(self.order())
            stuck = [name for name in self.vertices if name not in ordered]
            if stuck:
                raise ValueError(stuck[0])
            return None
        head = min(loops, key=lambda name: len(loops[name]))
        body = loops[head]
        for name in list(body):
            body |= dict.fromkeys(self._inseparable(name))
        return head, [name for name in self.vertices if name in body]

    def _inseparable(self, name: str) -> list[str]:
        """What belongs to a vertex wherever it is: the waits of a race, a block with a deadline up to its end."""
        if self.kind(name) is Kind.FIRST_SPLIT:
            return [line.target for line in self.out_of(name)]
        if self.kind(name) is not Kind.WITHIN:
            return []
        block = {name: None}
        todo = [vertex.name for vertex in self.vertices.values() if vertex.loop == name]
        while todo:
            block[todo[-1]] = None
            todo += [line.source for line in self.into(todo.pop()) if line.source and line.source not in block]
        return list(block)

    # ---- ends --------------------------------------------------------------------------------------------------

    def join_ends(self, fresh: Callable[[str], str]) -> list[str]:
        """One end instead of several: those behind a split are joined as it splits. What terminates others, where
        others may be under way, is answered."""
        wrong = []
        known = self.dominators()
        bit = {name: 1 << number for number, name in enumerate(self.vertices)}
        over = dict(known)
        for split in reversed([name for name in self.order() if self.kind(name) in _SPLITS]):
            ends = [line for line in self.into("") if over.get(line.source, 0) & bit[split]]
            if len(ends) < 2:
                continue
            together = self.kind(split) is Kind.AND_SPLIT
            wrong += [line.terminates for line in ends if line.terminates and together]
            joined = fresh(f"{split}-end")
            mask = over[split]
            self.insert(Vertex(joined, Kind.AND_JOIN if together else Kind.XOR_JOIN), ends)
            over[joined] = mask
            self.into("")[-1].terminates = next((line.terminates for line in ends if line.terminates), "")
        return wrong

    # ---- soundness ---------------------------------------------------------------------------------------------

    def unsound(self) -> tuple[str, str] | None:
        """A vertex at which branches meet that were not split for it, and what is wrong there; None: each execution
        has one mark for each branch, and ends."""
        return _Reduction(self).run()


class _Reduction:
    """The graph becomes smaller by rules that change nothing of what is asked; what is left shows what is wrong."""

    def __init__(self, draft: Draft) -> None:
        self.kinds = {name: vertex.kind for name, vertex in draft.vertices.items()}
        self.edges: list[tuple[str, str]] = [(line.source, line.target) for line in draft.lines]
        self.draft = draft

    def run(self) -> tuple[str, str] | None:
        while True:
            wrong = self._parallel()
            if wrong:
                return wrong
            if not (self._contract() or self._merge() or self._region()):
                break
        left = dict.fromkeys(name for edge in self.edges for name in edge if name)
        together = [name for name in left if self.kinds[name] in (Kind.AND_SPLIT, Kind.AND_JOIN)]
        if not together:
            return None
        joins = [name for name in together if self.kinds[name] is Kind.AND_JOIN] or together
        return joins[0], "branches that run at the same time are joined elsewhere than they were split, or not all"

    def _exclusive(self, name: str) -> bool:
        return self.kinds[name] in _EXCLUSIVE

    def _parallel(self) -> tuple[str, str] | None:
        counted: dict[tuple[str, str], int] = {}
        for edge in self.edges:
            counted[edge] = counted.get(edge, 0) + 1
        for (source, target), count in counted.items():
            if count > 1 and source and target:
                if not self._exclusive(source) and self._exclusive(target):
                    return target, "it is passed once for each of several branches that run at the same time"
                if self._exclusive(source) and not self._exclusive(target):
                    return target, "it waits for branches of which only one is taken"
        self.edges = list(counted)
        return None

    def _contract(self) -> bool:
        """What has one edge to it and one from it."""
        comes, goes = self._touching()
        for name in comes:
            if name and len(comes[name]) == 1 and len(goes.get(name, [])) == 1:
                one, other = comes[name][0], goes[name][0]
                if one != other:
                    self.edges.remove(one)
                    self.edges[self.edges.index(other)] = (one[0], other[1])
                    return True
        return False

    def _merge(self) -> bool:
        """A split right behind one of its kind, a join right before one of its kind."""
        comes, goes = self._touching()
        for source, target in self.edges:
            if not source or not target or self._exclusive(source) != self._exclusive(target):
                continue
            if (len(comes[source]) == 1 and len(comes[target]) == 1) or (
                len(goes[source]) == 1 and len(goes.get(target, [])) == 1
            ):
                self.edges.remove((source, target))
                self.edges = [(source if a == target else a, source if b == target else b) for a, b in self.edges]
                return True
        return False

    def _region(self) -> bool:
        """Exclusive vertices between one that all ways lead through and another."""
        if all(self._exclusive(name) for edge in self.edges for name in edge if name):
            return False
        comes, goes = self._touching()
        for split in goes:
            if split and self._exclusive(split) and len(goes[split]) > 1:
                inside = self._closed(split, comes, goes)
                if inside is not None:
                    end, members = inside
                    leaving = [edge for edge in self.edges if edge[0] not in members]
                    self.edges = [edge for edge in leaving if edge[1] not in members or edge[1] == split]
                    self.edges = [(a, b) for a, b in self.edges] + [(split, end)]
                    return True
        return False

    def _closed(
        self, split: str, comes: dict[str, list[tuple[str, str]]], goes: dict[str, list[tuple[str, str]]]
    ) -> tuple[str, list[str]] | None:
        members, todo, edge_of = {split: None}, [split], {}
        while todo:
            ready = [
                target
                for _, target in goes.get(todo.pop(), [])
                if target and target not in members and self._exclusive(target)
            ]
            for target in ready:
                if all(source in members for source, _ in comes[target]):
                    members[target] = None
                    todo.append(target)
            edge_of = {b: a for m in members for a, b in goes.get(m, []) if b not in members}
            if len(edge_of) == 1 and len(members) > 1:
                return next(iter(edge_of)), list(members)
        return None

    def _touching(self) -> tuple[dict[str, list[tuple[str, str]]], dict[str, list[tuple[str, str]]]]:
        comes: dict[str, list[tuple[str, str]]] = {}
        goes: dict[str, list[tuple[str, str]]] = {}
        for edge in self.edges:
            comes.setdefault(edge[1], []).append(edge)
            goes.setdefault(edge[0], []).append(edge)
        return comes, goes
