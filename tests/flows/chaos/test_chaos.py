"""Eighty accidents of whatever a sweep and its servers consist of; `make chaos` prints them.

`chaos_kinds.KINDS` lists them. CHAOS_KILLS says how many there are, CHAOS_SEED which.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.flows.chaos.chaos_kinds import KINDS, kinds_in
from tests.flows.chaos.chaos_sweep import Kill, sweep_with_kills
from tests.flows.chaos.chaos_world import Size, World

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(7200)]

_KILLS = int(os.environ.get("CHAOS_KILLS", "80"))
_SEED = int(os.environ.get("CHAOS_SEED", "0"))
_SIZE = Size(trials=4, epochs=20, pause=1.0)


def _kinds(world: World, draw: random.Random) -> Iterator[str]:
    """Yield kinds in a random order, each as often as the others."""
    own = kinds_in(world)
    while True:
        yield from draw.sample(own, len(own))


@pytest.mark.parametrize(
    ("remote", "servers", "ranks"),
    [(True, True, 1), (False, True, 1), (False, False, 1), (False, False, 2)],
    ids=["far", "near", "alone", "ranks"],
)
def test_whatever_is_killed_the_sweeps_come_out_right(
    tmp_path: Path, say: Callable[[str], None], remote: bool, servers: bool, ranks: int
) -> None:
    draw = random.Random(f"{_SEED} {remote} {servers} {ranks}")
    goal = -(-_KILLS // 4)
    kills: list[Kill] = []
    world = World(tmp_path, remote=remote, servers=servers, terminal=not servers, ranks=ranks)
    kinds = deque(itertools.islice(_kinds(world, draw), goal))
    try:
        for number in itertools.count():
            world.write(f"s{number}", _SIZE)
            kills += sweep_with_kills(world, _SIZE, kinds, draw, say)
            if not kinds:
                break
    finally:
        world.close()
    _print(kills, say)


def _print(kills: list[Kill], say: Callable[[str], None]) -> None:
    """Print a table of the kills."""
    say(f"{'killed':<19} {'times':>5}   seconds to the next step: median, most")
    for kind in KINDS:
        seconds = sorted(kill.seconds for kill in kills if kill.kind == kind)
        if seconds:
            middle = seconds[len(seconds) // 2]
            say(f"{kind:<19} {len(seconds):>5}   {middle:.1f}, {seconds[-1]:.1f}")
