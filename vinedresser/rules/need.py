"""What a rule or a signal has to be shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from vinedresser.errors import ConfigError
from vinedresser.store.collections.collection import Collection
from vinedresser.store.collections.schedule import SaveConfig

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step

__all__ = ["Need"]

# Steps at the beginning that are looked at closely, by how much more rarely the others are, and
# what is rare enough from the start.
_EARLY, _EARLY_TENSORS = 400, 2000
_RARER = 5
_SELDOM = 100


@dataclass(frozen=True)
class Need:
    """What a rule has to be shown.

    Attributes:
        collection: name of a built-in collection, or of one of the rule's own with a ``regex``.
        every: at every so many train steps, from step 0; each evaluation and prediction is shown.
            What comes more often than every hundred steps comes five times as rarely later:
            statistics from step 400 on, tensors from step 2000 on. Most faults are there from the
            start, and what is captured takes time and room.
        reductions: statistics (`vinedresser.store.reductions`). Scalars such as losses and
            metrics have none.
        modes: "train", "eval", "predict".
        tensor: the full tensors too.
        rows: of a full tensor, at most so many rows (`SaveConfig.rows`); None: all.
        rarer_from: the step from which on it is shown five times as rarely; None: as above.
        regex: found (`re.search`) in the full names of the tensors.
        required: say so when nothing of it is there; False: the rule is only better with it.
        stop: the first train step at which it is no longer shown; None: it always is. In other
            modes it is shown until as many train steps have been done.

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
    required: bool = True
    stop: int | None = None

    def __post_init__(self) -> None:
        """Check what most rules take from their parameters."""
        if self.every < 1:
            raise ConfigError(f"every = {self.every}: must be at least 1 step")

    @cached_property
    def saves(self) -> tuple[SaveConfig, ...]:
        """What the hook has to save for it.

        Raises:
            ConfigError: a value is not right.
        """
        save = SaveConfig(
            every=self.every,
            modes=self.modes,
            reductions=self.reductions,
            tensor=self.tensor if self.reductions else None,
            rows=self.rows,
        )
        early = self._early
        if early is None or not 0 < self.every < _SELDOM:
            return (replace(save, stop=self.stop),)
        if self.stop is not None and self.stop <= early:
            return (replace(save, stop=self.stop),)
        later = replace(save, start=early, stop=self.stop, every=_RARER * self.every)
        return replace(save, stop=early), later

    @property
    def _early(self) -> int | None:
        """The step from which on it is shown more rarely; None: it never is."""
        if self.rarer_from is not None:
            return self.rarer_from
        if not (self.reductions or self.tensor):
            return None
        return _EARLY_TENSORS if self.tensor else _EARLY

    @cached_property
    def selection(self) -> Collection:
        """The collection of the names that it is about.

        Raises:
            ConfigError: the regex is not valid.
        """
        return Collection(self.collection, self.regex, self.saves)

    def due(self, step: Step) -> bool:
        """Say whether something of it has to be in this step."""
        return any(save.due(step.step, step.mode) for save in self.saves)

    def met(self, step: Step) -> bool:
        """Say whether something of it is in this step."""
        if self.reductions and self.regex is None:
            # The step knows the modules, by which some collections have their members.
            return all(
                step.reduction_of(self.collection, word) or step.vectors_of(self.collection, word)
                for word in self.reductions
            )
        if self.reductions:
            return any(
                self.selection.holds(name) and all(word in statistics for word in self.reductions)
                for name, statistics in step.reductions.items()
            )
        return any(self.selection.holds(name) for name in (*step.scalars, *step.tensor_names))
