"""Filter pruning: ``python -m benchmarks.pruning``.

The time of a round, criteria against random order, choices of filters for a target by operations,
latency against operations, and targets by latency.
"""

from __future__ import annotations

import argparse

from benchmarks.pruning.criteria import print_criteria
from benchmarks.pruning.latency import print_latencies
from benchmarks.pruning.macs import print_macs
from benchmarks.pruning.round_time import print_round_time
from benchmarks.pruning.target import print_target

_PARTS = ("round", "criteria", "macs", "latency", "target")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=_PARTS, action="append")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    parts = given.part or _PARTS
    if "round" in parts:
        print_round_time(given.rounds)
    if "criteria" in parts:
        print_criteria(given.seeds)
    if "macs" in parts:
        print_macs(given.seeds)
    if "latency" in parts:
        print_latencies(given.rounds)
    if "target" in parts:
        print_target()


if __name__ == "__main__":
    main()
