"""What a rule or a signal has to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from vinedresser.capture.collections import Collection
from vinedresser.capture.schedule import SaveConfig

if TYPE_CHECKING:
    from vinedresser.capture.store.step import Step

__all__ = ["Need"]


@dataclass(frozen=True)
class Need:
    """What a rule has to be shown.

    Attributes:
        collection: name of a built-in collection, or of one of the rule's own with a ``regex``.
        every: at every so many train steps, from step 0; each evaluation and prediction is shown.
        reductions: statistics (`vinedresser.capture.reductions`). Scalars such as losses and
            metrics have none.
        modes: "train", "eval", "predict".
        tensor: the full tensors too.
        rows: of a full tensor, at most so many rows (`SaveConfig.rows`); None: all.
        regex: found (`re.search`) in the full names of the tensors.
        required: say so when nothing of it is there; False: the rule is only better with it.
    """

    collection: str
    every: int = 1
    reductions: tuple[str, ...] = ()
    modes: tuple[str, ...] = ("train",)
    tensor: bool = False
    rows: int | None = None
    regex: str | None = None
    required: bool = True

    @cached_property
    def save(self) -> SaveConfig:
        """What the hook has to save for it.

        Raises:
            ConfigError: a value is not right.
        """
        return SaveConfig(
            every=self.every,
            modes=self.modes,
            reductions=self.reductions,
            tensor=self.tensor if self.reductions else None,
            rows=self.rows,
        )

    @cached_property
    def names(self) -> Collection:
        """The collection of the names that it is about.

        Raises:
            ConfigError: the regex is not valid.
        """
        return Collection(self.collection, self.regex, self.save)

    def due(self, step: Step) -> bool:
        """Say whether something of it has to be in this step."""
        return self.save.due(step.step, step.mode)

    def met(self, step: Step) -> bool:
        """Say whether something of it is in this step."""
        if self.reductions:
            return any(
                self.names.holds(name) and all(word in statistics for word in self.reductions)
                for name, statistics in step.reductions.items()
            )
        return any(self.names.holds(name) for name in (*step.scalars, *step.tensor_names))
