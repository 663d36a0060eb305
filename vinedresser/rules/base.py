"""What a rule is, and what it needs to see."""

from __future__ import annotations

import inspect
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from vinedresser.capture.collections import Collection
from vinedresser.capture.config import CaptureConfig
from vinedresser.capture.finding import Finding, Severity
from vinedresser.capture.schedule import SaveConfig

if TYPE_CHECKING:
    from vinedresser.capture.store.step import Step
    from vinedresser.infra.run_directory import RunRecord

__all__ = ["Need", "Rule", "capture_for"]


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
        regex: found (`re.search`) in the full names of the tensors.
        required: say so when nothing of it is there; False: the rule is only better with it.
    """

    collection: str
    every: int = 1
    reductions: tuple[str, ...] = ()
    modes: tuple[str, ...] = ("train",)
    tensor: bool = False
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


class Rule(ABC):
    """Watches a run and says what it finds: a pure fold over the committed steps.

    A subclass keeps each parameter of its constructor under the parameter's own name, as plain JSON
    types, and its state wherever it likes; `update` may use nothing but this state and the step, so
    that a run gives the same findings whenever and however often it is judged.

    Attributes:
        name: of the rule, in snake case; made from the class's name.
        severity: of its findings: "stop" ends the run, "warning" and "info" do not.
        needs: what the hook has to capture for it.
    """

    name: ClassVar[str]
    severity: Severity = "stop"
    needs: tuple[Need, ...]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def begin(self, info: RunRecord) -> None:  # noqa: B027 (few rules want it)
        """Take note of the run, before its first step.

        Args:
            info: as the hook completed it: hyperparameters, expected steps, capture configuration.
        """

    @abstractmethod
    def update(self, step: Step) -> Finding | None:
        """Take in the next step; return what is now found.

        Args:
            step: of any mode and rank, also one at which nothing was due for this rule.
        """

    def finish(self) -> Finding | None:
        """Return what is found when the run is over and all of it was seen."""
        return None

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of its constructor, as plain JSON types."""
        parameters = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in parameters}

    def found(
        self,
        step: Step,
        *,
        since: int,
        tensor: str,
        statistic: str,
        value: float,
        threshold: float,
        confidence: float,
        seen: str,
        cause: str,
        remedy: str,
        evidence: dict[str, Any],
    ) -> Finding:
        """Return a finding of this rule at a step; see `Finding` for the arguments.

        NaN and infinities in the evidence become text, for the sake of whoever reads it as JSON.
        """
        return Finding(
            rule=self.name,
            severity=self.severity,
            step=step.step,
            since=since,
            mode=step.mode,
            rank=step.rank,
            tensor=tensor,
            statistic=statistic,
            value=value,
            threshold=threshold,
            confidence=confidence,
            seen=seen,
            cause=cause,
            remedy=remedy,
            evidence={key: _plain(value) for key, value in evidence.items()},
        )


def _plain(value: Any) -> Any:
    """Return a value in which numbers that JSON does not know, such as NaN, are written out."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value


def capture_for(rules: Iterable[Rule]) -> CaptureConfig:
    """Return what the hook has to capture for some rules, and nothing more.

    Raises:
        ConfigError: a rule needs a collection, statistic or mode that does not exist, or two rules
            mean different tensors by one collection.
    """
    config = CaptureConfig()
    for rule in rules:
        for need in rule.needs:
            config = config.merged(CaptureConfig({need.collection: need.names}))
    return config
