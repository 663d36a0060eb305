"""The base classes of rules."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from vinedresser.capture.config.capture_config import CaptureConfig
from vinedresser.rules.applicability import RANKS_OF_TORCH, Reasons
from vinedresser.rules.faults import Fault, Stage
from vinedresser.rules.need import Need
from vinedresser.rules.signals.base import constructor_parameters, signals_of
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.json_values import strict_json
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord
from vinedresser.store.step_record import Mode

__all__ = ["OnceRule", "Rule", "capture_for"]


class Rule(ABC):
    """Watches a run and reports findings: a pure fold over the committed steps.

    A subclass stores each parameter of its constructor in an attribute of the same name, as plain
    JSON types. `update` may use only the rule's own state and the step, so that a run has the same
    findings whenever and however often it is judged.

    Attributes:
        name: name in snake case, by default made from the class name.
        severity: severity of the findings; "stop" ends the run, "warning" and "info" do not.
        fault: kind of fault that the findings report (`vinedresser.rules.faults`); "" if it varies.
        stage: place of the fault between causes and effects (`STAGES`).
        consequences: faults that this fault can cause, and stages all of whose faults it can cause.
            Of several rules that report one fault, the one that is named for it declares both.
        cause_unknown: the fault is an outcome that says nothing about its cause.
        former_names: names of rules that this one replaces, accepted in tables of rules.
        predecessors: names of such rules in `rule_configs` of smdebug, accepted there, too.
        position: place among the built-in rules. Of several that fire at one step, the first ends
            the run.
        inapplicable: by framework the reason why the rule has nothing to look at.
        left_out_of: presets for a kind of training that leave out the rule.
        silent_after_stop: report nothing once a finding of severity "stop" was made: for rules
            that explain less than others, or matter only in a run worth keeping.
        needs: data that the hook must capture, in addition to the needs of the rule's signals.
        expected_steps: optimizer steps that the run will take, set before `begin`; None: unknown.
    """

    name: ClassVar[str]
    severity: Severity = "stop"
    fault: Fault = ""
    stage: ClassVar[Stage] = "optimisation"
    consequences: ClassVar[tuple[Fault | Stage, ...]] = ()
    cause_unknown: ClassVar[bool] = False
    former_names: ClassVar[tuple[str, ...]] = ()
    predecessors: ClassVar[tuple[str, ...]] = ()
    position: ClassVar[int] = 0
    inapplicable: ClassVar[Reasons] = Reasons()
    left_out_of: ClassVar[tuple[str, ...]] = ()
    silent_after_stop: ClassVar[bool] = False
    needs: tuple[Need, ...] = ()
    expected_steps: int | None = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def begin(self, info: RunRecord) -> None:  # noqa: B027 (optional)
        """Read the run's record, before the first step.

        Args:
            info: hyperparameters, expected steps, capture configuration.
        """

    @classmethod
    def applies_to(cls, info: RunRecord) -> bool:
        """Return whether the rule has something to look at in runs of a framework and its ranks."""
        if cls.inapplicable is RANKS_OF_TORCH and info.world_size == 1:
            return False
        return not getattr(cls.inapplicable, info.framework, "")

    def on_record(self, info: RunRecord) -> None:  # noqa: B027 (optional)
        """Read what the hook completes in the record, in the first steps and for new models.

        Called after `begin`, and whenever the record has changed.
        """

    @abstractmethod
    def update(self, step: Step) -> Finding | None:
        """Process the next step; return a finding, or None.

        Args:
            step: step of any mode and rank, even if nothing was due for this rule.
        """

    def before_first(self, since: float, until: float) -> Finding | None:  # noqa: ARG002 (optional)
        """Return a finding about the time without a first step, or None.

        Called like `idle`, but before `begin`, and only for runs that vinedresser has started.

        Args:
            since: start of the processes, in seconds since the epoch.
            until: time without a step so far.
        """
        return None

    def idle(self, until: float) -> Finding | None:  # noqa: ARG002 (optional)
        """Return a finding about the time without a new step, or None.

        Called repeatedly while the run is silent, before each step with the time of that step, and
        after the last step with the end time of the run. The finding must not depend on which of
        these calls comes first: compare ``until`` with a limit and do not use it otherwise.

        Args:
            until: time without a new step so far, in seconds since the epoch.
        """
        return None

    def finish(self) -> Finding | None:
        """Return a finding after the last step of a run that no other ended, or None."""
        return None

    def finish_early(self) -> Finding | None:
        """Return a finding after the last step of a run that others ended, or None.

        Such a run crashed, was killed, or was stopped by a person, a sweep or its owner. Its result
        is unknown: only what was certain without an end may be reported.
        """
        return None

    def suspicion(self) -> Finding | None:
        """Return the finding that a bad outcome would confirm; None if there is no symptom.

        Many healthy trainings show a symptom, too. The caller must compare it with something else,
        as a sweep compares a trial with its other trials.
        """
        return None

    def confirmed(self) -> Finding | None:
        """Return the suspicion as a finding, once: another rule has found the outcome to be bad."""
        return None

    @classmethod
    def can_explain(cls, cause: Finding, finding: Finding) -> bool:  # noqa: ARG003 (optional)
        """Return whether a finding with the rule's fault can explain another, by their steps.

        Args:
            cause: finding with the rule's fault, of this or another rule.
            finding: finding of the same run.
        """
        return True

    @property
    def without_stop(self) -> Severity:
        """The rule's severity, but "warning" instead of "stop": for findings that end no run."""
        return "warning" if self.severity == "stop" else self.severity

    @property
    def params(self) -> dict[str, Any]:
        """The constructor's arguments, as plain JSON types."""
        return constructor_parameters(self)

    @property
    def all_needs(self) -> tuple[Need, ...]:
        """The needs of the rule and of its signals, without duplicates."""
        held = (need for signal in signals_of(self) for need in signal.needs)
        return tuple(dict.fromkeys((*self.needs, *held)))

    def found(
        self,
        step: Step | None,
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
        severity: Severity | None = None,
        rank: int | None = None,
        correction: dict[str, Any] | None = None,
    ) -> Finding:
        """Return a finding of this rule at a step, None before the first; see `Finding`.

        ``fault`` and ``severity`` default to those of the rule, ``rank`` to that of the step. NaN
        and infinities in the evidence become strings.
        """
        return Finding(
            rule=self.name,
            severity=severity or self.severity,
            step=step.step if step else 0,
            since=since,
            mode=step.mode if step else "train",
            rank=(step.rank if step else 0) if rank is None else rank,
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


class OnceRule(Rule):
    """Makes one finding at most, from the steps of rank 0.

    Attributes:
        modes: modes of the steps to watch.
    """

    modes: ClassVar[tuple[Mode, ...]] = ("train",)
    # Whether the finding was made, or the rule does not apply.
    _done: bool = False

    @abstractmethod
    def watch(self, step: Step) -> Finding | None:
        """Process the next step of these modes; return the finding, or None."""

    def at_end(self) -> Finding | None:
        """Return the finding after the last step of a run without one, or None."""
        return None

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._done or step.rank != 0 or step.mode not in self.modes:
            return None
        return self._once(self.watch(step))

    def finish(self) -> Finding | None:
        """See `Rule.finish`."""
        return None if self._done else self._once(self.at_end())

    def _once(self, finding: Finding | None) -> Finding | None:
        self._done |= finding is not None
        return finding


def capture_for(rules: Iterable[Rule], stated: Iterable[Need] = ()) -> CaptureConfig:
    """Return the capture configuration that exactly meets the needs of some rules.

    Args:
        stated: needs of what the user states.

    Raises:
        ConfigError: a rule needs an unknown collection, statistic or mode, or two rules define one
            collection differently.
    """
    config = CaptureConfig()
    own = (need for rule in rules for need in rule.all_needs)
    for need in dict.fromkeys((*own, *stated)):
        config = config.merged(CaptureConfig({need.collection: need.selection}))
    return config
