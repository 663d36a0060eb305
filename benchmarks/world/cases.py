"""Which trainings are drawn: pairs of a healthy training and its faulty twin."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from benchmarks.faults.classes import classes_of
from corpus.family import Family
from vinedresser.errors import ConfigError

__all__ = ["Case", "carried", "draw_cases", "every_case", "matches", "only", "repeated"]


@dataclass(frozen=True)
class Case:
    """One training.

    Attributes:
        family: name of its family.
        fault: class of the fault that separates it from its twin; two classes are joined by "+".
        seed: seed of the whole drawing.
        number: number of the pair among those of this family and fault.
        faulty: whether it has the faults.
        repeat: which repetition with other random weights and batches; 0 for the first.
    """

    family: str
    fault: str
    seed: int
    number: int
    faulty: bool
    repeat: int = 0

    @property
    def faults(self) -> tuple[str, ...]:
        """Classes of the faults that separate it from its twin."""
        return tuple(classes_of(self.fault))

    @property
    def pair(self) -> str:
        """Name that the twins share."""
        return f"{self.family}-{self.fault}-{self.seed}.{self.number}"

    @property
    def id(self) -> str:
        """Name of the case, and of its directory."""
        return f"{self.pair}-{'F' if self.faulty else 'H'}{self.repeat or ''}"

    @property
    def twin(self) -> Case:
        """The other training of the pair."""
        return replace(self, faulty=not self.faulty)

    @property
    def good(self) -> Case:
        """The healthy training of the pair, in its first repetition."""
        return replace(self, faulty=False, repeat=0)

    @property
    def random_seed(self) -> int:
        """Seed of the choices of both twins."""
        return random.Random(self.pair).getrandbits(32)


def carried(families: Mapping[str, Family]) -> set[tuple[str, str]]:
    """Return the families and the faults that they carry."""
    return {(name, fault) for name, family in families.items() for fault in family.faults}


def matches(family: str, fault: str, pattern: str) -> bool:
    """Return whether a pattern is the family, the fault, one of two faults, or family/fault."""
    return pattern in (family, fault, f"{family}/{fault}", *classes_of(fault))


def only(choices: set[tuple[str, str]], patterns: Sequence[str]) -> set[tuple[str, str]]:
    """Return the families and faults that match one of the patterns; all without a pattern.

    Args:
        choices: families and the faults that they carry.
        patterns: see `matches`.

    Raises:
        ConfigError: a pattern matches nothing.
    """
    if not patterns:
        return choices
    chosen: set[tuple[str, str]] = set()
    for pattern in patterns:
        matching = {choice for choice in choices if matches(*choice, pattern)}
        if not matching:
            raise ConfigError(f"--only {pattern}: no family, fault or family/fault of that name")
        chosen |= matching
    return chosen


def draw_cases(choices: set[tuple[str, str]], pairs: int, seed: int) -> list[Case]:
    """Return both trainings of each pair.

    The faults are used in turn, each with the family that was used least. Where there are two
    faults at a time, which are many, the families are used in turn, each with the two faults that
    were used least.

    Args:
        choices: families and the faults that they carry.
        pairs: number of pairs.
        seed: random seed.
    """
    draw = random.Random(seed)
    two = any(len(classes_of(fault)) > 1 for _, fault in choices)
    turns = (_by_family if two else _by_fault)(choices, draw)
    numbers: Counter[tuple[str, str]] = Counter()
    cases = []
    for family, fault in islice(turns, pairs):
        case = Case(family, fault, seed, numbers[family, fault], faulty=False)
        numbers[family, fault] += 1
        cases += [case, case.twin]
    return cases


def repeated(cases: Sequence[Case], times: int) -> list[Case]:
    """Return the cases, and each healthy one again with other random weights and batches.

    Args:
        cases: the cases.
        times: number of repetitions.
    """
    return [
        replace(case, repeat=repeat)
        for case in cases
        for repeat in range(1 if case.faulty else 1 + times)
    ]


def every_case(choices: set[tuple[str, str]], seed: int) -> list[Case]:
    """Return both trainings of one pair of each family and fault.

    Args:
        choices: families and the faults that they carry.
        seed: random seed of the trainings.
    """
    healthy = [Case(*choice, seed, number=0, faulty=False) for choice in sorted(choices)]
    return [one for case in healthy for one in (case, case.twin)]


def _by_fault(choices: set[tuple[str, str]], draw: random.Random) -> Iterator[tuple[str, str]]:
    """Yield families and faults, the faults in turn."""
    faults = sorted({fault for _, fault in choices})
    draw.shuffle(faults)
    used: Counter[str] = Counter()
    numbers: Counter[tuple[str, str]] = Counter()
    for fault in cycle(faults):
        carriers = sorted(family for family, one in choices if one == fault)
        draw.shuffle(carriers)
        family = min(carriers, key=lambda carrier: (numbers[carrier, fault], used[carrier]))
        used[family] += 1
        numbers[family, fault] += 1
        yield family, fault


def _by_family(choices: set[tuple[str, str]], draw: random.Random) -> Iterator[tuple[str, str]]:
    """Yield families and faults, the families in turn."""
    families = sorted({family for family, _ in choices})
    draw.shuffle(families)
    used: Counter[str] = Counter()
    for family in cycle(families):
        faults = sorted(fault for one, fault in choices if one == family)
        draw.shuffle(faults)
        fault = min(faults, key=lambda one: sum(used[word] for word in (one, *classes_of(one))))
        used.update((fault, *classes_of(fault)))
        yield family, fault
