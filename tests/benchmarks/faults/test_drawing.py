"""Random cases: pairs that differ in one fault."""

from __future__ import annotations

from benchmarks.faults.classes import right_words
from benchmarks.faults.drawing import DRAWN_FAULTS, draw_cases


def test_pairs_differ_only_in_the_fault() -> None:
    count = 2 * len(DRAWN_FAULTS)
    drawn = draw_cases(count, seed=3)
    assert draw_cases(count, seed=3) == drawn
    assert draw_cases(count, seed=4) != drawn
    healthy, faulty = drawn[::2], drawn[1::2]
    assert {case.fault_class for case in faulty} == set(DRAWN_FAULTS)
    for one, other in zip(healthy, faulty, strict=True):
        assert (one.faulty, other.faulty) == (False, True)
        assert right_words(other.fault_class)
        parts = ("data", "model", "init", "optimizer", "train")
        assert sum(getattr(one, name) != getattr(other, name) for name in parts) == 1, other.id
