"""The tiny environment, against returns worked out by hand."""

from __future__ import annotations

import pytest
import torch

from corpus.data.corridor import Corridor, mean_return


def test_the_shortest_way_pays_most_and_standing_still_costs_the_episode() -> None:
    world = Corridor(3, seed=0)

    def shortest(state: torch.Tensor) -> int:
        # Action 0 is one column further, action 2 one row.
        return 0 if int(state.argmax()) % 3 < 2 else 2

    # From the 8 other cells it takes 1 to 4 moves, 18 in all; the last one pays 1.
    expected = 1 - 0.02 * (18 / 8 - 1)
    assert mean_return(world, shortest, 4000) == pytest.approx(expected, abs=0.005)
    assert mean_return(world, lambda _: 1, 50) == pytest.approx(-0.02 * 12)
