"""The failure detector: how long a peer may be silent follows from its own pauses, within two bounds."""

from __future__ import annotations

from unerring.correlation.detector import Detector


def test_patience_is_twice_the_average_pause_and_six_times_how_much_it_varies() -> None:
    detector = Detector(1, 100_000)
    now, learnt = 5_000, []
    detector.hear("n/0", now)
    for pause_us in (800, 800, 1_607, 100, 800):
        now += pause_us
        detector.hear("n/0", now)
        learnt.append(detector.patience_us("n/0"))
    # The averages are 800, 800, 900, 800, 800 of the pauses and 0, 0, 100, 187, 163 of how far each was off.
    assert learnt == [1_600, 1_600, 2_400, 2_722, 2_578]
    assert not detector.suspects("n/0", now + 2_578)
    assert detector.suspects("n/0", now + 2_579)


def test_patience_stays_within_its_bounds() -> None:
    detector = Detector(120, 3_000)
    for now in range(0, 500, 50):
        detector.hear("quick", now)
    assert detector.patience_us("quick") == 120
    for now in range(0, 50_000, 5_000):
        detector.hear("slow", now)
    assert detector.patience_us("slow") == 3_000


def test_one_long_silence_counts_as_the_longest_that_is_borne() -> None:
    """A peer that was away for an hour is not waited for another one."""
    detector = Detector(1, 800)
    for now in (0, 10, 20, 3_600_000_020, 3_600_000_030):
        detector.hear("n/0", now)
    # The silence made the average 10 + 790 // 8, off by 790 // 8; the pause of 10 after it, 95 and 98.
    assert detector.patience_us("n/0") == 2 * 95 + 6 * 98


def test_a_peer_is_watched_from_when_it_is_expected_and_one_that_is_not_is_suspected() -> None:
    detector = Detector(1, 100)
    assert detector.suspects("n/0", 7)
    detector.expect("n/0", 7)
    assert not detector.suspects("n/0", 8)
    assert detector.suspects("n/0", 9), "nothing is learnt of it yet: the least patience"
    detector.expect("n/0", 9)
    assert detector.suspects("n/0", 9), "it was expected before"
    detector.hear("n/0", 9)
    assert not detector.suspects("n/0", 10)


def test_a_peer_that_was_forgotten_is_learnt_anew() -> None:
    detector = Detector(1, 10_000)
    for now in (0, 700, 2_000):
        detector.hear("n/0", now)
    assert detector.patience_us("n/0") > 1_400
    detector.forget("n/0")
    detector.forget("never heard of")
    assert detector.suspects("n/0", 2_000)
    detector.hear("n/0", 2_000)
    assert detector.patience_us("n/0") == 1
    detector.hear("n/0", 2_010)
    assert detector.patience_us("n/0") == 20
