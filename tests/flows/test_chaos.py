"""Fifty kills of whatever a sweep and its servers consist of; `make chaos` prints them.

CHAOS_KILLS says how many there are, CHAOS_SEED which.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flows.chaos_sweep import Kill, sweep_with_kills
from tests.flows.chaos_world import KINDS, Size, World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]

_KILLS = int(os.environ.get("CHAOS_KILLS", "50"))
_SEED = int(os.environ.get("CHAOS_SEED", "0"))
# As many kills hit one sweep at the most.
_PER_SWEEP = 14
_SIZE = Size(trials=4, epochs=20, pause=1.0)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Return what prints a line at once."""

    def line(text: str) -> None:
        with capsys.disabled():
            print(text, flush=True)  # noqa: T201 (it is what `make chaos` shows)

    return line


def _kinds(draw: random.Random, *, remote: bool) -> Iterator[str]:
    """Yield kinds in a random order, each as often as the others."""
    own = [kind for kind in KINDS if remote or kind not in ("relay", "SeaweedFS")]
    while True:
        yield from draw.sample(own, len(own))


@pytest.mark.parametrize(("remote", "share"), [(True, 0.6), (False, 0.4)], ids=["far", "near"])
def test_whatever_is_killed_the_sweeps_come_out_right(
    tmp_path: Path, say: Callable[[str], None], remote: bool, share: float
) -> None:
    draw = random.Random(f"{_SEED} {remote}")
    goal = round(_KILLS * share)
    kinds = _kinds(draw, remote=remote)
    kills: list[Kill] = []
    world = World(tmp_path, remote=remote, servers=True)
    try:
        for number in itertools.count():
            world.write(f"s{number}", _SIZE)
            some = itertools.islice(kinds, min(_PER_SWEEP, goal - len(kills)))
            kills += sweep_with_kills(world, _SIZE, some, draw, say)
            if len(kills) >= goal:
                break
    finally:
        world.close()
    _print(kills, say)


def _print(kills: list[Kill], say: Callable[[str], None]) -> None:
    """Print a table of the kills."""
    say(f"{'killed':<14} {'times':>5}   seconds to the next step: median, most")
    for kind in KINDS:
        seconds = sorted(one.seconds for one in kills if one.kind == kind)
        if seconds:
            middle = seconds[len(seconds) // 2]
            say(f"{kind:<14} {len(seconds):>5}   {middle:.1f}, {seconds[-1]:.1f}")
