"""Data that a rule or a signal needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from vinedresser.errors import ConfigError
from vinedresser.store.collections.collection import Collection
from vinedresser.store.collections.schedule import SaveConfig
from vinedresser.store.reading.step import Step

__all__ = ["Need", "optional_statistics"]

# End of the early steps for statistics and for tensors, the factor of the interval afterwards, and
# the interval from which on it stays the same.
_EARLY, _EARLY_TENSORS = 400, 2000
_RARER = 5
_SELDOM = 100
# Interval and end of the first steps, at which an interval that is longer, but not seldom, is
# shortened.
_FIRST, _FIRST_STOP = 5, 11


@dataclass(frozen=True)
class Need:
    """Tensors or scalars that the hook must capture for a rule.

    Attributes:
        collection: name of a built-in collection, or of a new one with a ``regex``.
        every: capture every N train steps, from step 0, and every step of other modes. An interval
            below 100 steps becomes five times as long later: from step 400 for statistics, from
            step 2000 for tensors. Most faults exist from the start, and captures cost time and
            space. Where an interval becomes longer, steps 5 and 10 are captured, too: a short run
            may be over before the third check otherwise.
        reductions: statistics (`vinedresser.store.reductions`); none for scalars such as losses
            and metrics.
        modes: any of "train", "eval" and "predict".
        tensor: capture the full tensors, too.
        rows: maximum rows of a full tensor (`SaveConfig.rows`); None: all.
        rarer_from: step at which the interval becomes five times as long; None: as above; 0: never.
        regex: pattern that `re.search` finds in the full names of the tensors.
        types: class names of modules whose tensors these are, of a collection without a regex.
        required: report a finding if the data are missing; False: the rule works without them.
        stop: first train step without captures; None: never stop. Captures of other modes stop
            after the same number of train steps.

    Raises:
        ConfigError: ``every`` is below 1.
    """

    collection: str
    every: int = 1
    reductions: tuple[str, ...] = ()
    modes: tuple[str, ...] = ("train",)
    tensor: bool = False
    rows: int | None = None
    rarer_from: int | None = None
    regex: str | None = None
    types: tuple[str, ...] = ()
    required: bool = True
    stop: int | None = None

    def __post_init__(self) -> None:
        """Check the interval."""
        if self.every < 1:
            raise ConfigError(f"every = {self.every}: must be at least 1 step")

    @cached_property
    def saves(self) -> tuple[SaveConfig, ...]:
        """The save configs that meet the need.

        Raises:
            ConfigError: a value is invalid.
        """
        save = SaveConfig(
            every=self.every,
            modes=self.modes,
            reductions=self.reductions,
            tensor=self.tensor if self.reductions else None,
            rows=self.rows,
        )
        early = self._early
        if early is None or self.every >= _SELDOM:
            return (replace(save, stop=self.stop),)
        first = (replace(save, stop=_FIRST_STOP, every=_FIRST),) if self.every > _FIRST else ()
        if self.stop is not None and self.stop <= early:
            return *first, replace(save, stop=self.stop)
        later = replace(save, start=early, stop=self.stop, every=_RARER * self.every)
        return *first, replace(save, stop=early), later

    @property
    def _early(self) -> int | None:
        """The step at which the interval becomes longer; None: never."""
        if self.rarer_from is not None:
            return self.rarer_from or None
        if not (self.reductions or self.tensor):
            return None
        return _EARLY_TENSORS if self.tensor else _EARLY

    @cached_property
    def selection(self) -> Collection:
        """The collection to capture.

        Raises:
            ConfigError: the regex is invalid.
        """
        return Collection(self.collection, self.regex, self.saves, types=self.types)

    def due(self, step: Step) -> bool:
        """Return whether this step should contain such data."""
        return any(save.due(step.step, step.mode) for save in self.saves)

    def met(self, step: Step) -> bool:
        """Return whether this step contains such data."""
        if self.reductions and self.regex is None and not self.types:
            # The members of some collections depend on the modules, which the step knows.
            return all(
                step.reduction_of(self.collection, word) or step.vectors_of(self.collection, word)
                for word in self.reductions
            )
        if self.reductions:
            return any(
                self.selection.holds(name) and all(word in statistics for word in self.reductions)
                for name, statistics in step.reductions.items()
            )
        if self.tensor and self.regex is None and not self.types:
            return bool(step.tensors_of(self.collection))
        return any(self.selection.holds(name) for name in (*step.scalars, *step.tensor_names))


def optional_statistics(every: int, **reductions: tuple[str, ...]) -> tuple[Need, ...]:
    """Return needs of statistics without which a rule works, too.

    Args:
        every: see `Need`.
        reductions: names of the statistics by collection.
    """
    return tuple(
        Need(collection, every=every, reductions=words, required=False)
        for collection, words in reductions.items()
    )
