"""What a rule is, and what it needs to see."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.rules.faults import Fault
from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import constructor_parameters, signals_of
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.records.json_fields import strict_json

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["Rule", "capture_for"]


class Rule(ABC):
    """Watches a run and says what it finds: a pure fold over the committed steps.

    A subclass keeps each parameter of its constructor under the parameter's own name, as plain JSON
    types, and its state wherever it likes; `update` may use nothing but this state and the step, so
    that a run gives the same findings whenever and however often it is judged.

    Attributes:
        name: of the rule, in snake case; made from the class's name.
        severity: of its findings: "stop" ends the run, "warning" and "info" do not.
        fault: of its findings, as far as it is always the same (`vinedresser.rules.faults`).
        silent_after_stop: report nothing once a finding of severity "stop" was made: for rules
            that explain less than others, or matter only in a run worth keeping.
        needs: what the hook has to capture for it, besides what its signals need.
        expected_steps: optimizer steps that the run will take, known before `begin`; None: unknown.
    """

    name: ClassVar[str]
    severity: Severity = "stop"
    fault: Fault = ""
    silent_after_stop: ClassVar[bool] = False
    needs: tuple[Need, ...]
    expected_steps: int | None = None

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

    def idle(self, until: float) -> Finding | None:  # noqa: ARG002 (few rules want it)
        """Return what is found in that no step was committed up to a time.

        It is asked again and again while the run is silent, before each step with the time of that
        step, and after the last with the time at which the run ended. What is found must be the
        same whichever of these asks first: it may depend on the steps, and on ``until`` only in
        that it lies beyond a limit.

        Args:
            until: seconds since the epoch.
        """
        return None

    def finish(self) -> Finding | None:
        """Return what is found when the run is over and all of it was seen."""
        return None

    def suspicion(self) -> Finding | None:
        """Return the finding that it would make if the outcome agreed; None: it sees nothing.

        A symptom alone is in many healthy trainings too: who asks has to hold it against something
        else, as a sweep does against its other trials.
        """
        return None

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of its constructor, as plain JSON types."""
        return constructor_parameters(self)

    @property
    def all_needs(self) -> tuple[Need, ...]:
        """What the hook has to capture for it and for the signals that it holds."""
        held = (need for signal in signals_of(self) for need in signal.needs)
        return tuple(dict.fromkeys((*self.needs, *held)))

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
        fault: Fault | None = None,
        correction: dict[str, Any] | None = None,
    ) -> Finding:
        """Return a finding of this rule at a step; see `Finding` for the arguments.

        A finding is of the rule's own fault unless another is given.

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
            fault=self.fault if fault is None else fault,
            correction=correction or {},
            evidence={key: strict_json(value) for key, value in evidence.items()},
        )


def capture_for(rules: Iterable[Rule]) -> CaptureConfig:
    """Return what the hook has to capture for some rules, and nothing more.

    Raises:
        ConfigError: a rule needs a collection, statistic or mode that does not exist, or two rules
            mean different tensors by one collection.
    """
    config = CaptureConfig()
    for need in dict.fromkeys(need for rule in rules for need in rule.all_needs):
        config = config.merged(CaptureConfig({need.collection: need.selection}))
    return config
