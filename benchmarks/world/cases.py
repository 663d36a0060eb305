"""Which trainings are drawn: pairs of a healthy training and its faulty twin."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.world.family import Family
from vinedresser.errors import ConfigError

__all__ = ["Case", "draw_cases", "only"]


@dataclass(frozen=True)
class Case:
    """One training.

    Attributes:
        family: name of its family.
        fault: class of the fault that separates it from its twin.
        seed: seed of the whole drawing.
        number: number of the pair among those of this family and fault.
        faulty: whether it has the fault.
    """

    family: str
    fault: str
    seed: int
    number: int
    faulty: bool

    @property
    def pair(self) -> str:
        """Name that the twins share."""
        return f"{self.family}-{self.fault}-{self.seed}.{self.number}"

    @property
    def id(self) -> str:
        """Name of the case, and of its directory."""
        return f"{self.pair}-{'F' if self.faulty else 'H'}"

    @property
    def twin(self) -> Case:
        """The other training of the pair."""
        return replace(self, faulty=not self.faulty)

    @property
    def random_seed(self) -> int:
        """Seed of the choices of both twins."""
        return random.Random(self.pair).getrandbits(32)


def only(families: Mapping[str, Family], patterns: Sequence[str]) -> set[tuple[str, str]]:
    """Return the families and faults that match one of the patterns; all without a pattern.

    Args:
        families: families by name.
        patterns: ``family``, ``fault`` or ``family/fault``.

    Raises:
        ConfigError: a pattern matches nothing.
    """
    every = {(name, fault) for name, family in families.items() for fault in family.faults}
    if not patterns:
        return every
    chosen: set[tuple[str, str]] = set()
    for pattern in patterns:
        matching = {one for one in every if pattern in (*one, "/".join(one))}
        if not matching:
            raise ConfigError(f"--only {pattern}: no family, fault or family/fault of that name")
        chosen |= matching
    return chosen


def draw_cases(choices: set[tuple[str, str]], pairs: int, seed: int) -> list[Case]:
    """Return both trainings of each pair.

    The faults are used in turn, each with the family that was used least.

    Args:
        choices: families and the faults that they carry.
        pairs: number of pairs.
        seed: random seed.
    """
    draw = random.Random(seed)
    faults = sorted({fault for _, fault in choices})
    draw.shuffle(faults)
    used: Counter[str] = Counter()
    numbers: Counter[tuple[str, str]] = Counter()
    cases = []
    for place in range(pairs):
        fault = faults[place % len(faults)]
        carriers = sorted(family for family, one in choices if one == fault)
        draw.shuffle(carriers)
        family = min(carriers, key=lambda one: (numbers[one, fault], used[one]))
        case = Case(family, fault, seed, numbers[family, fault], faulty=False)
        used[family] += 1
        numbers[family, fault] += 1
        cases += [case, case.twin]
    return cases
