"""A day of the factory, without anything around it: how many situations of each kind the rules find."""

from __future__ import annotations

import argparse
from collections import Counter

from factory.plant import Plant
from factory.rules import RULES
from unerring import run_on


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m factory", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="another seed, another day")
    parser.add_argument("--events", type=int, default=4_000, help="how many primary events")
    told = parser.parse_args()
    events = list(Plant(told.seed).events(told.events))
    made = Counter(event.stream for event in run_on(list(RULES), events))
    for kind, counts in (("events", Counter(event.stream for event in events)), ("situations", made)):
        for name, count in sorted(counts.items()):
            print(f"{kind:>10}  {name:<16} {count:>7}")


if __name__ == "__main__":
    main()
