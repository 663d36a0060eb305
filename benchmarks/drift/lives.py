"""Lives of monitors and of their peers: when they raise their first alarm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift.fleet import Fleet, baseline_values
from benchmarks.drift.peers import Peer, adwin, kolmogorov_smirnov, psi
from benchmarks.drift.worlds import World

__all__ = ["NEVER", "PEERS", "Scale", "first_alarms"]

NEVER = 1 << 30
"""Window of the first alarm of a life without one."""

PEERS = [
    "KS 0.05 per column",
    "KS, Bonferroni over columns",
    "KS, Bonferroni over columns and windows",
    "PSI > 0.2",
    "ADWIN per column (river)",
]


@dataclass(frozen=True)
class Scale:
    """How much is simulated.

    Args:
        monitors: number of lives.
        peers: of these, how many each peer lives, too; ADWIN lives a quarter of them.
        windows: of a life.
        change: window at which a drift begins, or a fraction of it later; the number of windows if
            there is none.
    """

    monitors: int
    peers: int
    windows: int
    change: float


def first_alarms(
    world: World, scale: Scale, budget: float, seed: int | Sequence[int]
) -> dict[str, NDArray[np.int64]]:
    """Return the window of the first alarm in each life, `NEVER` if there is none.

    Args:
        world: what is seen.
        scale: how much.
        budget: of the monitors.
        seed: of everything.

    Returns:
        int64 [lives] for the monitor, as "vinedresser", and each peer. Monitors that refused their
        baseline have no life, and peers that cannot run have no entry.
    """
    random = np.random.default_rng(seed)
    baseline = baseline_values(world, random, scale.monitors)
    fleet = Fleet(world, baseline, budget)
    found = {"vinedresser": np.full(len(fleet.lives), NEVER)}
    peers = _peers(world, baseline, scale)
    found |= {name: np.full(len(one), NEVER) for name, one in peers.items()}
    noise = world.noise()
    for window in range(scale.windows):
        shape = (world.rows(window), scale.monitors, world.columns)
        values = world.shaped(random, noise(random, shape))
        if window + 1 > scale.change and world.drifted is not None:
            first = int(scale.change)
            drifted = world.drifted(random, values, world.strength(window - first))
            begin = round((scale.change - first) * len(values)) if window == first else 0
            values = np.concatenate([values[:begin], drifted[begin:]])
        alarms = {"vinedresser": fleet.update(values)}
        for name, lives in peers.items():
            # After its first alarm, a life is over.
            alarms[name] = np.array(
                [
                    found[name][life] == NEVER and alarmed(values[:, life])
                    for life, alarmed in enumerate(lives)
                ],
                bool,
            )
        for name, one in alarms.items():
            found[name][one & (found[name] == NEVER)] = window
        if all((one < NEVER).all() for one in found.values()):
            break
    return found


def _peers(world: World, baseline: NDArray[np.float64], scale: Scale) -> dict[str, list[Peer]]:
    """Return the peers of each name, one for each of their lives."""
    columns = world.columns
    levels = [0.05, 0.05 / columns, 0.05 / columns / scale.windows]
    found: dict[str, list[Peer]] = {
        name: [kolmogorov_smirnov(baseline[:, life], level) for life in range(scale.peers)]
        for name, level in zip(PEERS, levels, strict=False)
    }
    found[PEERS[3]] = [psi(baseline[:, life]) for life in range(scale.peers)]
    detectors = [adwin(columns) for _ in range(-(-scale.peers // 4))]
    if None not in detectors:
        found[PEERS[4]] = [detector for detector in detectors if detector is not None]
    return found
