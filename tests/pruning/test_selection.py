"""The channels that are removed: exactly as many as asked for."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.pruning.small_groups import conv_group
from vinedresser.errors import PruningError
from vinedresser.pruning.cost import SavedMacs
from vinedresser.pruning.group import Group
from vinedresser.pruning.selection import Limits, by_macs, removable, select


def scores_of(groups: list[Group], seed: int = 0) -> dict[str, NDArray[np.float64]]:
    random = np.random.default_rng(seed)
    return {group.name: random.random(group.size) for group in groups}


def test_the_lowest_scores_of_all_groups_go() -> None:
    groups = [conv_group("a", 3), conv_group("b", 3)]
    scores = {"a": np.array([0.5, 0.1, 0.9]), "b": np.array([0.2, 0.8, 0.3])}
    assert select(groups, scores, 3) == {"a": (1,), "b": (0, 2)}


def test_ties_go_to_the_first_group_and_the_lowest_channel() -> None:
    groups = [conv_group("z", 4), conv_group("a", 4)]
    scores = {"a": np.zeros(4), "z": np.zeros(4)}
    # A threshold would have removed all eight.
    assert select(groups, scores, 5) == {"z": (0, 1, 2), "a": (0, 1)}


def test_locked_groups_and_groups_without_scores_are_left_alone() -> None:
    groups = [conv_group("a", 4), conv_group("b", 4, locked="is an output"), conv_group("c", 4)]
    scores = {"a": np.ones(4), "b": np.zeros(4)}
    assert select(groups, scores, 2) == {"a": (0, 1)}


def test_one_channel_always_stays() -> None:
    with pytest.raises(PruningError, match=r"4 filters were to be removed, but the limits allow 3"):
        select([conv_group("a", 4)], {"a": np.ones(4)}, 4)


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (Limits(floor=3), 5),
        (Limits(floor_share=0.3), 5),  # 0.3 x 8 = 2.4 channels stay, so 3
        (Limits(round_to=4), 4),
        (Limits(round_to=3), 5),  # 8 to 6 to 3
        (Limits(floor=4, round_to=3), 2),
        (Limits(floor=9), 0),
        (Limits(round_to=16), 0),
    ],
)
def test_limits(limits: Limits, most: int) -> None:
    group = conv_group("a", 8)
    assert removable([group], limits) == most
    assert len(select([group], {"a": np.arange(8.0)}, most, limits).get("a", ())) == most


def test_scores_that_are_not_finite_are_refused_by_name() -> None:
    with pytest.raises(PruningError, match=r"^a: the score of channel 2 is nan"):
        select([conv_group("a", 3)], {"a": np.array([1, 2, np.nan])}, 1)


def test_scores_of_another_length_are_refused() -> None:
    with pytest.raises(PruningError, match=r"^a: scores have shape \[2\]; 3 channels need \[3\]"):
        select([conv_group("a", 3)], {"a": np.ones(2)}, 1)


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    distinct=st.integers(1, 6),
    floor=st.integers(1, 5),
    round_to=st.integers(1, 8),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_selection_keeps_its_limits(
    *, sizes: list[int], distinct: int, floor: int, round_to: int, share: float, seed: int
) -> None:
    groups = [conv_group(f"g{place}", size) for place, size in enumerate(sizes)]
    random = np.random.default_rng(seed)
    scores = {
        one.name: random.integers(distinct, size=one.size).astype(np.float64) for one in groups
    }
    limits = Limits(floor=floor, round_to=round_to)
    most = removable(groups, limits)
    count = int(share * most)
    gone = select(groups, scores, count, limits)
    removed = sum(map(len, gone.values()))
    assert removed == count if round_to == 1 else count - removed < round_to
    for group in groups:
        channels = list(gone.get(group.name, ()))
        left = group.size - len(channels)
        assert not channels or (left >= floor and left % round_to == 0)
        kept = [one for one in range(group.size) if one not in channels]
        if channels:
            highest = max((scores[group.name][channel], channel) for channel in channels)
            assert highest < min((scores[group.name][one], one) for one in kept)
    assert select(groups, scores, count, limits) == gone


def test_a_selection_without_blocks_is_the_sorted_list() -> None:
    """The obvious second implementation: sort all channels, take the first."""
    groups = [conv_group(f"g{place}", 20) for place in range(4)]
    scores = scores_of(groups)
    ranked = sorted(
        (scores[group.name][channel], place, channel)
        for place, group in enumerate(groups)
        for channel in range(group.size)
    )
    expected: dict[str, list[int]] = {}
    for _, place, channel in ranked[:31]:
        expected.setdefault(groups[place].name, []).append(channel)
    found = select(groups, scores, 31)
    assert found == {name: tuple(sorted(gone)) for name, gone in expected.items()}


@given(
    sizes=st.lists(st.integers(2, 5), min_size=2, max_size=3),
    round_to=st.integers(1, 2),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_other_removal_saves_as_much_for_less_loss(
    *, sizes: list[int], round_to: int, seed: int
) -> None:
    """Brute force over all removals, of groups of which none reads another."""
    groups = [conv_group(f"g{place}", size) for place, size in enumerate(sizes)]
    random = np.random.default_rng(seed)
    per_channel = random.integers(1, 50, size=len(groups)).tolist()
    shapes = {f"{group.name}.weight": (group.size, 3) for group in groups}
    uses = {f"{one.name}.weight": each for one, each in zip(groups, per_channel, strict=True)}
    limits = Limits(round_to=round_to)
    most = [removable([group], limits) for group in groups]
    # Rises that grow: the losses are convex.
    losses = {
        one.name: dict(enumerate(np.cumsum([2.0, *np.sort(random.random(spare))]).tolist()))
        for one, spare in zip(groups, most, strict=True)
    }
    whole = [
        [count for count in range(spare + 1) if not count or (one.size - count) % round_to == 0]
        for one, spare in zip(groups, most, strict=True)
    ]

    def outcome(gone: tuple[int, ...]) -> tuple[int, float]:
        """Return the operations that are saved, and the rise of the loss."""
        loss = sum(losses[one.name][count] for one, count in zip(groups, gone, strict=True))
        return 3 * sum(map(int.__mul__, gone, per_channel)), float(loss)

    possible = [outcome(gone) for gone in product(*whole)]
    gone = [0] * len(groups)
    order = by_macs(groups, losses, SavedMacs(groups, shapes, uses), limits)
    for place, size in order:
        gone[place] += size
        saved, loss = outcome(tuple(gone))
        best = min(other for other_saved, other in possible if other_saved >= saved)
        assert loss <= best + 1e-9
    assert gone == most


def test_what_was_not_measured_lies_on_the_convex_hull() -> None:
    """Of a loss that jumps, the channels before the jump are worth a part of it; "b" comes between.

    A loss that falls counts as one that stays, and one that is not finite as the highest.
    """
    groups = [conv_group("a", 7), conv_group("b", 5)]
    shapes = {"a.weight": (7, 1), "b.weight": (5, 1)}
    losses = {
        # Rises by 0, 0, 2, 2, 2, and then without end.
        "a": {0: 5.0, 2: 4.0, 3: 10.0, 5: 11.0, 6: np.nan},
        # By 1, 1, 3, 3.
        "b": {0: 5.0, 2: 7.0, 4: 13.0},
    }
    order = by_macs(groups, losses, SavedMacs(groups, shapes, {"a.weight": 1, "b.weight": 1}))
    assert "".join("ab"[place] for place, _ in order) == "aabbaaabba"
