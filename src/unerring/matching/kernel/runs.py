"""The general kernel of a pattern: for each key an ordered list of runs, stepped by each row.

A run is one open path of the search: it waits for one row (or for the time of an absence) and carries the registers
that its conditions and its output need. The list is in the order of preference, earlier starts first, so a match at the
head of a list is certain. A step replaces a run by those that follow from binding the row, in their order.

The generated `step` works on arrays alone. It stops early when an array might become too small; the caller enlarges it
and calls again.
"""

from __future__ import annotations

from unerring.matching.kernel.constants import marked
from unerring.matching.kernel.lists import (
    BASE,
    COUNT,
    DEADLINE,
    FIRST_ROW,
    FRESH,
    LAST_ROW,
    LAST_TIME,
    LONG,
    NEVER,
    NO_ROW,
    OUT,
    START_ROW,
    START_TIME,
    STATE,
    ListSource,
)
from unerring.matching.kernel.lowering import PLACES_MAX, Final, Net, Option, Wait, too_many
from unerring.matching.kernel.reading import RowReader, settled
from unerring.matching.kernel.registers import Bank, Register, View, declare, fold, leaf_in_condition
from unerring.matching.kernel.scalar import Lines, Uncompiled, emit, hold
from unerring.model import TIME_MAX
from unerring.rules import Expr, PatternPlan, Selection, SkipKind, patterns as pt

OPTIONS_MAX = 24
"""Each is a piece of source."""


class RunsSource(ListSource):
    """Writes the source for one plan."""

    def __init__(self, plan: PatternPlan, net: Net, reader: RowReader, bank: Bank) -> None:
        self.plan, self.net, self.reader, self.bank = plan, net, reader, bank
        if len(net.elements) > PLACES_MAX:
            raise Uncompiled(too_many(PLACES_MAX))
        self.points: list[Option] = []
        """The options that a run can wait for; its PC is the index here plus one."""
        self.within = None if plan.within_us is None else min(plan.within_us, LONG)
        self.lines = Lines()
        self.cuts = plan.selection is not Selection.ALL
        """Whether a match ends all paths from its start row that are less preferred."""
        self.starts = [option for option in self.net.starts if isinstance(option, Wait)]
        self._check()
        skips = plan.skip.kind in (SkipKind.TO_FIRST, SkipKind.TO_LAST)
        kind = "first row" if plan.skip.kind is SkipKind.TO_FIRST else "last row"
        self.target = Register(kind, plan.skip.variables, None) if skips else None
        """The row at which the next match may start, where a skip names a variable."""
        self.merges = self.cuts and self.net.multiplies()
        """Whether runs of one start that have become equal are made one, lest they double with every row."""
        self._explore()
        self.timers = plan.selection is Selection.PREFERRED or any(isinstance(p, Final) for p in self.points)
        nexts = [p for p in self.points if any(a.kind is pt.AbsenceKind.NEXT for a in p.absences)]
        waits = [p for p in self.points if isinstance(p, Wait)]
        self.fresh = any(isinstance(p, Wait) for p in nexts)
        """Whether a condition asks if the row before was bound."""
        self.passes_over = not nexts and all(p.gap.contiguity is not pt.Contiguity.STRICT for p in waits)
        """Whether a row that no variable accepts, and that no stop condition holds on, leaves all runs as they are."""
        followers = [len(self._options(place)) for place in range(len(self.net.elements))]
        self.fan = max(followers) + 1
        if self.fan > OPTIONS_MAX:
            raise Uncompiled(f"more than {OPTIONS_MAX} ways lead on from one row")

    def _check(self) -> None:
        if len(self.starts) < len(self.net.starts):
            raise Uncompiled("it can match without a row")
        if any(start.absences for start in self.starts):
            raise Uncompiled("an absence before the first row looks back")
        names = [name for element in self.net.elements for name in element.variables]
        if not self.cuts and len(set(names)) < len(names) and not self.net.one_path():
            raise Uncompiled("a variable stands at two places: one match could be found twice")
        if not self.cuts and not self.net.one_way():
            raise Uncompiled("two ways lead on by one variable: one match could be found twice")
        waits = [option for place in range(len(self.net.elements)) for option in self.net.bound(place)[1]]
        for final in (option for option in waits if isinstance(option, Final)):
            if self.plan.within_us is None and any(absence.within_us is None for absence in final.absences):
                raise Uncompiled("an absence at the end has no deadline")

    def _explore(self) -> None:
        """Find every point that a run can wait at."""
        waiting = [start.element for start in self.starts]
        seen: list[int] = []
        while waiting:
            element = waiting.pop()
            if element in seen:
                continue
            seen.append(element)
            for _, option in self._options(element):
                if isinstance(option, Wait):
                    waiting.append(option.element)
                elif any(a.kind is pt.AbsenceKind.NEXT for a in option.absences) and len(option.absences) > 1:
                    raise Uncompiled("several absences at the end, one of them of the next row")
                if option != Final(()) and option not in self.points:
                    self.points.append(option)

    def _options(self, element: int) -> list[tuple[str, Option]]:
        """The continuations after binding a row at an element, most preferred first, each with its guard over `c`."""
        place = self.net.elements[element]
        again, leave, greedy = self.net.bound(element)
        inside = [("True" if place.most is None else f"c < {place.most}", option) for option in again]
        beyond = [("True" if place.least <= 1 else f"c >= {place.least}", option) for option in leave]
        options = inside + beyond if greedy else beyond + inside
        for number, (guard, option) in enumerate(options):
            if guard == "True" and option == Final(()) and self.cuts:
                return options[: number + 1]
        return options

    def write(self, measures: list[Register]) -> str:
        """The whole source."""
        for register in (*measures, *([self.target] if self.target is not None else [])):
            declare(self.bank, register)
        return settled(self._write, self.reader, self.bank)

    def _write(self, lines: Lines) -> None:
        self.lines = lines
        columns = ", ".join(self.reader.fetches)
        lines("")
        if self.merges:
            self._write_known()
        self._write_fire()
        lines("")
        lines("")
        with lines.block(f"def step(n, first_row, through, row_base, {STATE}, {OUT}, key, K, Q, {columns}):"):
            self._write_step()

    # --- a row ---

    def _write_step(self) -> None:
        lines = self.lines
        with lines.block("for i in range(first_row, n):"):
            lines("t = T[i]")
            if self.timers:
                with lines.block("while M[1] > 0 and HT[0] < t:"):
                    with lines.block(f"if not fire({STATE}, {OUT}):"):
                        lines("return i")
            admitted = self.reader.admitted(lines)
            if admitted != "True":
                with lines.block(f"if not {admitted}:"):
                    lines("continue")
            lines("k = key[i]")
            lines(f"need = (count[k] + {len(self.starts)}) * {self.fan}")
            with lines.block("if M[0] < need or M[2] + need > len(OT) or M[1] + 2 > len(HT) or count[k] > M[3]:"):
                lines("return i")
            lines("q = row_base + i")
            lines("first = -1")
            lines("last = -1")
            lines("size = 0")
            lines("cut = -1")
            lines("s = head[k]")
            with lines.block("while s != -1:"):
                self._write_run()
            for start in self.starts:
                self._write_start(start)
            lines("position = i")
            lines("stamp = t")
            self._write_resolve()
        if self.timers:
            with lines.block("while M[1] > 0 and HT[0] <= through:"):
                with lines.block(f"if not fire({STATE}, {OUT}):"):
                    lines("return n")
        lines("return n + 1")

    def _write_run(self) -> None:
        lines = self.lines
        lines("following_s = following[s]")
        lines("p = I[s, 0]")
        self._write_settled()
        with lines.block(f"elif t > I[s, {DEADLINE}]:"):
            self._free("s")
        for number, point in enumerate(self.points):
            with lines.block(f"elif p == {number + 1}:"):
                if isinstance(point, Wait):
                    self._write_wait(point)
                else:
                    self._write_final(point)
        lines("s = following_s")

    def _write_settled(self) -> None:
        """The first cases for a run: a match before it has ended it, or it is a match itself."""
        lines = self.lines
        with lines.block(f"if {f'I[s, {START_ROW}] == cut' if self.cuts else 'False'}:"):
            self._free("s")
        with lines.block("elif p == 0:"):
            lines(f"cut = I[s, {START_ROW}]")
            self._append("s")

    def _write_wait(self, wait: Wait) -> None:
        lines = self.lines
        strict = wait.gap.contiguity is pt.Contiguity.STRICT
        for absence in wait.absences:
            if absence.kind is pt.AbsenceKind.NEXT:
                self._write_forbidden(absence, strict, fresh=not strict)
        ends = wait.stops if wait.gap.until is None else (wait.gap.until, *wait.stops)
        if ends:
            with lines.block(f"if {self._any_of(ends)}:"):
                self._free("s")
                lines("s = following_s")
                lines("continue")
        with lines.block(f"if {self._accepts(wait.variable, 's', strict)}:"):
            if wait.refusals:
                with lines.block(f"if {self._any_of(wait.refusals)}:"):
                    if wait.gap.contiguity is pt.Contiguity.ANY:
                        self._write_stay(wait, in_any=False)
                    else:
                        self._free("s")
                    lines("s = following_s")
                    lines("continue")
            self._write_bind(wait, "s", keep=wait.gap.contiguity is pt.Contiguity.ANY)
            if wait.gap.contiguity is pt.Contiguity.ANY:
                self._write_stay(wait, in_any=True)
        with lines.block("else:"):
            if strict:
                self._free("s")
            else:
                self._write_stay(wait, in_any=False)

    def _any_of(self, conditions: tuple[Expr, ...]) -> str:
        """Source: one of these stop conditions holds on the row."""
        return " or ".join([self.reader.condition(one, self.lines) for one in conditions])

    def _write_stay(self, wait: Wait, in_any: bool) -> None:
        """The row was passed over: the run goes on waiting, unless an absence or a match before it forbids."""
        lines = self.lines
        conditions = [self._satisfies(a, False) for a in wait.absences if a.kind is pt.AbsenceKind.FOLLOWED]
        if in_any and self.cuts:
            conditions.append(f"cut == I[s, {START_ROW}]")
        if conditions:
            with lines.block(f"if {' or '.join(conditions)}:"):
                self._free("s")
            with lines.block("else:"):
                self._write_fresh("s", 0)
                self._append("s")
        else:
            self._write_fresh("s", 0)
            self._append("s")

    def _write_fresh(self, slot: str, fresh: int) -> None:
        """Only where it is asked for: else equal runs have equal bytes, whatever rows they passed over."""
        if self.fresh:
            self.lines(f"I[{slot}, {FRESH}] = {fresh}")

    def _write_forbidden(self, absence: pt.Absence, strict: bool, fresh: bool) -> None:
        lines = self.lines
        satisfied = self._satisfies(absence, strict)
        with lines.block(f"if {f'I[s, {FRESH}] == 1 and ' if fresh else ''}{satisfied}:"):
            self._free("s")
            lines("s = following_s")
            lines("continue")

    def _write_final(self, final: Final) -> None:
        lines = self.lines
        only = final.absences[0]
        satisfied = " or ".join(self._satisfies(absence, False) for absence in final.absences)
        with lines.block(f"if {satisfied}:"):
            self._free("s")
        with lines.block("else:"):
            if only.kind is pt.AbsenceKind.NEXT:
                lines("I[s, 0] = 0")
                lines(f"I[s, {DEADLINE}] = 0")
                lines(f"cut = I[s, {START_ROW}]")
            self._append("s")

    def _write_start(self, start: Wait) -> None:
        lines = self.lines
        accepted = self._accepts(start.variable, "0", False)
        guard = "cut != q and " if start is not self.starts[0] and self.cuts else ""
        if start.refusals:
            guard += f"not ({self._any_of(start.refusals)}) and "
        with lines.block(f"if {guard}{accepted}:"):
            self._allocate("b", "0")
            lines(f"I[b, {START_ROW}] = q")
            lines(f"I[b, {START_TIME}] = t")
            self._write_bound(start, "b")

    # --- binding ---

    def _write_bind(self, wait: Wait, slot: str, keep: bool) -> None:
        if keep:
            self._allocate("b", slot)
        else:
            self.lines(f"b = {slot}")
        self._write_bound(wait, "b")

    def _write_bound(self, wait: Wait, slot: str) -> None:
        """The row is bound: registers take it in, and the run becomes those that follow."""
        lines = self.lines
        lines(f"c = I[{slot}, {COUNT}] + 1" if wait.again else "c = 1")
        lines(f"I[{slot}, {COUNT}] = c")
        self._write_fresh(slot, 1)
        lines(f"I[{slot}, {LAST_ROW}] = q")
        lines(f"I[{slot}, {LAST_TIME}] = t")
        view = View(self.bank, slot, BASE)
        for register in list(self.bank.registers):
            if register.takes(wait.variable):
                fold(register, view, lines, self.reader.leaf)
        options = self._options(wait.element)
        if len(options) == 1 and options[0][0] == "True":
            self._write_option(options[0][1], slot)
            return
        lines("used = 0")
        ended = self.cuts and any(option == Final(()) for _, option in options[:-1])
        for number, (guard, option) in enumerate(options):
            if ended and number:
                guard = f"{guard} and cut != I[{slot}, {START_ROW}]"
            with lines.block(f"if {guard}:"):
                with lines.block("if used == 1:"):
                    self._allocate("o", slot)
                with lines.block("else:"):
                    lines(f"o = {slot}")
                    lines("used = 1")
                self._write_option(option, "o")

    def _write_option(self, option: Option, slot: str) -> None:
        lines = self.lines
        if option == Final(()):
            lines(f"I[{slot}, 0] = 0")
            lines(f"I[{slot}, {DEADLINE}] = 0")
            lines(f"cut = I[{slot}, {START_ROW}]")
        else:
            lines(f"I[{slot}, 0] = {self.points.index(option) + 1}")
            if isinstance(option, Wait):
                lines(f"I[{slot}, {DEADLINE}] = {self._deadline(slot, option.gap.within_us, 't')}")
            else:
                ends = ", ".join(self._deadline(slot, absence.within_us, "t") for absence in option.absences)
                one = len(option.absences) == 1
                lines(f"I[{slot}, {DEADLINE}] = {ends if one else f'max({ends})'}")
        if self.merges:
            with lines.block(f"if known(first, last, {slot}, following, I, F, N):"):
                self._free(slot)
            with lines.block("else:"):
                self._append(slot)
        else:
            self._append(slot)

    def _deadline(self, slot: str, within_us: int | None, since: str) -> str:
        ends = [] if self.within is None else [f"I[{slot}, {START_TIME}] + {marked(self.within)}"]
        if within_us is not None:
            ends.append(f"{since} + {marked(min(within_us, LONG))}")
        return f"min({', '.join((*ends, str(TIME_MAX)))})" if ends else str(TIME_MAX)

    def _write_known(self) -> None:
        """Whether a run equal to this one is in the list already: more preferred, and with the same future."""
        lines = self.lines
        integers, floats, states = self.bank.widths()
        with lines.block("def known(s, last, slot, following, I, F, N):"):
            with lines.block("while s != -1:"):
                # What tells most runs apart comes first.
                places = [
                    ("I", START_ROW),
                    ("I", 0),
                    ("I", COUNT),
                    ("I", FRESH),
                    *(("I", column) for column in range(3, BASE + integers)),
                ]
                places += [("F", column) for column in range(floats)] + [("N", column) for column in range(states)]
                same = " and ".join(f"{array}[s, {column}] == {array}[slot, {column}]" for array, column in places)
                with lines.block(f"if {same}:"):
                    lines("return True")
                lines("s = -1 if s == last else following[s]")  # the list is being built: its end is not marked yet
            lines("return False")
        lines("")
        lines("")

    def _accepts(self, variable: str, slot: str, previous_is_bound: bool) -> str:
        """Source: the row may be bound to the variable by the run at `slot`."""
        defined = self.plan.variable(variable)
        stream = self.reader.of_input(defined.stream)
        if defined.condition is None:
            return stream
        view = View(self.bank, slot, BASE)
        leaf = leaf_in_condition(self.bank, variable, view, self.reader.leaf, self.lines, previous_is_bound)
        held = hold(emit(defined.condition, self.lines, leaf))
        return held if stream == "True" else f"({stream} and {held})"

    def _satisfies(self, absence: pt.Absence, previous_is_bound: bool) -> str:
        satisfied = self._accepts(absence.variable, "s", previous_is_bound)
        if absence.within_us is None:
            return satisfied
        return f"({satisfied} and t <= {self._deadline('s', absence.within_us, f'I[s, {LAST_TIME}]')})"

    def _write_resolve(self) -> None:
        """Output what is certain, drop what that excludes, note when time alone may decide more."""
        lines = self.lines
        with lines.block("if last != -1:"):
            lines("following[last] = -1")
        selection = self.plan.selection
        with lines.block("if cut != -1:"):
            lines("x = 0")
            if selection is Selection.PREFERRED:
                with lines.block("while first != -1 and I[first, 0] == 0:"):
                    self._write_output("first")
                    self._write_skip()
            elif selection is Selection.RECENT:
                lines("best = -1")
                lines("s = first")
                with lines.block("while s != -1:"):
                    # The latest start; of one start the first in the list, the most preferred.
                    later = f"best == -1 or I[s, {START_ROW}] > I[best, {START_ROW}]"
                    with lines.block(f"if I[s, 0] == 0 and ({later}):"):
                        lines("best = s")
                    lines("s = following[s]")
                self._write_output("best")
                lines(f"bar = I[best, {LAST_ROW}]")
                self._write_drop(f"I[s, {START_ROW}] <= bar")
            else:
                once = selection is Selection.CONTINUOUS
                lines("s = first")
                lines("given = -1")
                with lines.block("while s != -1:"):
                    with lines.block(f"if I[s, 0] == 0{f' and I[s, {START_ROW}] != given' if once else ''}:"):
                        self._write_output("s")
                        if once:
                            lines(f"given = I[s, {START_ROW}]")
                            # All runs from this start end with it: marked as matches, they are dropped below.
                            lines("o = first")
                            with lines.block("while o != -1:"):
                                with lines.block(f"if I[o, {START_ROW}] == given:"):
                                    lines("I[o, 0] = 0")
                                lines("o = following[o]")
                    lines("s = following[s]")
                self._write_drop("I[s, 0] == 0")
        lines("head[k] = first")
        lines("count[k] = size")
        if self.timers:
            self._write_timer()

    def _write_skip(self) -> None:
        """After the match at the head of the list: runs that start before the next match may start are dropped."""
        lines = self.lines
        if self.target is None:
            past_last = self.plan.skip.kind is SkipKind.PAST_LAST
            lines(f"bar = I[first, {LAST_ROW if past_last else START_ROW}]")
            self._write_drop(f"I[s, {START_ROW}] {'<=' if past_last else '=='} bar")
            return
        view = View(self.bank, "first", BASE)
        with lines.block(f"if {view.state(self.target)} != 0:"):
            lines(f"M[4] = {NO_ROW}")
            lines(f"bar = I[first, {LAST_ROW}]")
        with lines.block("else:"):
            lines(f"bar = {view.value(self.target)} - 1")
            with lines.block(f"if bar < I[first, {START_ROW}]:"):
                lines(f"M[4] = {FIRST_ROW}")
                lines(f"bar = I[first, {LAST_ROW}]")
        self._write_drop(f"I[s, {START_ROW}] <= bar")

    def _write_drop(self, condition: str) -> None:
        lines = self.lines
        lines("s = first")
        lines("first = -1")
        lines("last = -1")
        lines("size = 0")
        with lines.block("while s != -1:"):
            lines("following_s = following[s]")
            with lines.block(f"if {condition}:"):
                self._free("s")
            with lines.block("else:"):
                self._append("s")
            lines("s = following_s")
        with lines.block("if last != -1:"):
            lines("following[last] = -1")

    def _write_timer(self) -> None:
        """A list with a match that must wait, or an absence, is looked at again when its first run's time is over."""
        lines = self.lines
        lines(f"soon = {NEVER}")
        finals = [number + 1 for number, point in enumerate(self.points) if isinstance(point, Final)]
        with lines.block("if first != -1:"):
            lines("waits = False")
            lines("s = first")
            with lines.block("while s != -1:"):
                pending = " or ".join(["I[s, 0] == 0", *(f"I[s, 0] == {number}" for number in finals)])
                with lines.block(f"if {pending}:"):
                    lines("waits = True")
                with lines.block(f"if I[s, 0] != 0 and I[s, {DEADLINE}] < soon:"):
                    lines(f"soon = I[s, {DEADLINE}]")
                lines("s = following[s]")
            with lines.block("if not waits:"):
                lines(f"soon = {NEVER}")
        with lines.block("if soon != due[k]:"):
            lines("due[k] = soon")
            with lines.block(f"if soon != {NEVER}:"):
                lines("push(M, HT, HK, soon, k)")

    # --- time ---

    def _write_fire(self) -> None:
        """The earliest timer: runs whose time is over end, absences that held are matches."""
        if not self.timers:
            return
        lines = self.lines
        self._write_heap()
        lines("")
        lines("")
        finals = [number + 1 for number, point in enumerate(self.points) if isinstance(point, Final)]
        with lines.block(f"def fire({STATE}, {OUT}):"):
            lines("stamp = HT[0]")
            lines("k = HK[0]")
            with lines.block("if due[k] != stamp:"):
                lines("pop(M, HT, HK)")
                lines("return True")
            with lines.block("if M[2] + count[k] > len(OT) or M[1] + 2 > len(HT):"):
                lines("return False")
            lines("pop(M, HT, HK)")
            lines(f"due[k] = {NEVER}")
            lines("position = -1")
            lines("first = -1")
            lines("last = -1")
            lines("size = 0")
            lines("cut = -1")
            lines("s = head[k]")
            with lines.block("while s != -1:"):
                lines("following_s = following[s]")
                lines("p = I[s, 0]")
                self._write_settled()
                if finals:
                    over = " or ".join(f"p == {number}" for number in finals)
                    with lines.block(f"elif I[s, {DEADLINE}] <= stamp and ({over}):"):
                        lines("I[s, 0] = 0")
                        lines(f"I[s, {DEADLINE}] = 0")
                        lines(f"cut = I[s, {START_ROW}]")
                        self._append("s")
                with lines.block(f"elif I[s, {DEADLINE}] <= stamp:"):
                    self._free("s")
                with lines.block("else:"):
                    self._append("s")
                lines("s = following_s")
            self._write_resolve()
            lines("return True")
