"""The scenario on the simulator: some seeds hold, mutants that show themselves early are caught."""

from __future__ import annotations

import pytest

from unerring.simulation import find, run

CORRELATION = find("correlation")


@pytest.mark.parametrize("seed", [0, 2, 3, 7, 8, 10])
def test_the_five_properties_hold(seed: int) -> None:
    """7: a late Enter of a dead process displaced its successor. 2, 8: copies of an Enter invalidated each other.
    10: a snapshot held whole times that its giver had not processed yet, and nobody else did."""
    outcome = run(CORRELATION, seed)
    assert outcome.violations == (), outcome.violations


@pytest.mark.parametrize(
    ("name", "seed"),
    [("correlation-durable", seed) for seed in (0, 5, 14)]
    + [("correlation-async", seed) for seed in (0, 1)]
    + [("correlation-standby", seed) for seed in (0, 1)]
    + [("correlation-hosts", 120_000_003)],
)
def test_they_hold_for_durable_replicas_for_engines_on_their_own_time_and_at_both_ends(name: str, seed: int) -> None:
    """5, 14: all replicas of a node died after they stood in the record and before they had a state on disk."""
    outcome = run(find(name), seed)
    assert outcome.violations == (), outcome.violations


@pytest.mark.parametrize("seed", [130000022, 130000074, 210003171, 622000104, 622000306, 623000050])
def test_rules_change_while_it_runs(seed: int) -> None:
    """22: a replica lost before it entered. 74: the only caught-up replica of a new node was lost for good, before the
    time was agreed on, and its peer waited for its state. 3171: a rule that went took its rank with it.
    104: a source that was started again got an old record late, and let go what it had promised a joiner. 306: a
    durable replica that was started again had older marks than it had told a joiner, and no room to get to them.
    623000050: each answer made a joiner ask all others again."""
    outcome = run(find("correlation-upgrade"), seed)
    assert outcome.violations == (), outcome.violations


@pytest.mark.parametrize(
    "seed",
    [
        *(210001000, 210001002, 210001006, 210001016, 210003194, 210004049, 295000011),
        *(630000169, 630000170, 630000174, 631000128),
    ],
)
def test_shards_split_and_merge_while_it_runs(seed: int) -> None:
    """1000: the application was started again after it had gone over from parts to the whole. 1002: one input was far
    ahead of another, which waited for the new shard. 1006: what a state of the log had
    already used up all credit. 1016: a durable replica whose state was of before the new nodes.
    3194: one that had gone over, not yet on its disk, when the old node went. 4049, 295000011: new nodes waited for a
    log that waited for the slowest shard, whose queue was full of what it kept for them. 169, 170: a replica that was
    given up came back with a disk of before an upgrade that was over. 174: a state was made of the log when new nodes
    had pruned what follows it. 631000128: an application was started again when it had kept some of a new part, and
    nothing was whole since it had gone over."""
    outcome = run(find("correlation-shards"), seed)
    assert outcome.violations == (), outcome.violations


@pytest.mark.parametrize("seed", [642000138, 642000251, 642000269, 849000020])
def test_rules_change_while_hosts_are_lost(seed: int) -> None:
    """138: all replicas of the application came back while a rule was added, from disks of before that. 251: a second
    upgrade began when a rule that had come with the first one was behind its time. 269: a host was lost for good before
    its new replicas had started, and the scenario started them all the same. 849000020: an upgrade waited for founding
    replicas that were lost before they had come."""
    outcome = run(find("correlation-hosts-upgrade"), seed)
    assert outcome.violations == (), outcome.violations


@pytest.mark.long
def test_upgrades_over_hosts_reach_every_rare_state() -> None:
    kind = find("correlation-hosts-upgrade")
    reached: set[str] = set()
    for seed in (642000138, 642000251, 642000269, 849000020, 642000238, 642000110, 642000201):
        reached |= set(run(kind, seed).reached)
    assert set(kind.must_reach) <= reached


@pytest.mark.parametrize("name", find("correlation-hosts-upgrade").mutants)
def test_an_upgrade_over_hosts_that_breaks_a_rule_is_caught(name: str) -> None:
    broken = find("correlation-hosts-upgrade", name)
    assert any(run(broken, seed).violations for seed in range(642000100, 642000104)), f"{name} was not caught"


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("it starts at the stamp instead of before it", 130000213),
        ("the old rules go on after the stamp", 130000200),
        ("the new rules begin before the stamp", 130000200),
        ("the time does not travel with the streams", 130000200),
    ],
)
def test_an_upgrade_that_breaks_a_rule_is_caught(name: str, seed: int) -> None:
    broken = find("correlation-upgrade", name)
    assert any(run(broken, seed + more).violations for more in range(8)), f"{name} was not caught"


EARLY = [
    "no duplicate filter",
    "no prev",
    "a watermark counts before its event",
    "credit ends inside a time",
    "the watermark is not capped",
    "prev is the last one sent",
    "merge by arrival",
    "snapshot without merge buffer",
    "eviction for silence alone",
    "two keepers with a record each",
    "a shard numbers by itself",
    "a shard is numbered before the others",
    "prev in a part is the whole stream's",
    "prev in a part is the last one sent",
]


@pytest.mark.parametrize("name", EARLY)
def test_a_mutant_is_caught(name: str) -> None:
    broken = find("correlation", name)
    assert any(run(broken, seed).violations for seed in range(12)), f"{name} was not caught"


@pytest.mark.parametrize(
    "name",
    [
        "a sealer that appends",
        "an application forgets before it has sealed",
        "a source numbers from where it joined",
    ],
)
def test_a_mutant_at_the_ends_is_caught(name: str) -> None:
    """Sources that several follow, and a log that several seal into."""
    broken = find("correlation-hosts", name)
    assert any(run(broken, seed).violations for seed in range(120_000_100, 120_000_104)), f"{name} was not caught"
