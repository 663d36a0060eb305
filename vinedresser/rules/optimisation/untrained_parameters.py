"""Rule: some parameters are not trained, although they should be."""

from __future__ import annotations

import math
import re
from typing import Any

from numpy.typing import NDArray

from vinedresser.rules.advice import listed
from vinedresser.rules.applicability import NO_NETWORK, Reasons
from vinedresser.rules.base import Rule
from vinedresser.rules.bounds import require_at_least
from vinedresser.rules.need import Need
from vinedresser.rules.optimisation.untrained_advice import ADVICE, FORGETFUL, LOST, RANDOM
from vinedresser.rules.signals.losses.compared import Batches
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.parameters.parameter_states import (
    ParameterState,
    ParameterStates,
    Trouble,
)
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_ORDER: tuple[Severity, ...] = ("info", "warning", "stop")
# More than this share of the parameters is the main part of the model.
_GREATER_PART = 0.5
# More than this share is nearly all of it.
_NEARLY_ALL = 0.9
# Less than this share may be a layer that the model no longer uses, wherever it stands.
_FEW = 0.01
# Evaluations before any train step that must have equal results, and their relative tolerance,
# since summation order may vary.
_EVALUATIONS, _SAME = 3, 1e-6
_CONFIDENCE = 0.9
# The scalar of a model with a name is `state/NAME.unapplied`.
_UNAPPLIED = "unapplied"
# Ratio of all elements of a model, with its biases, to those of its weights.
_BIASES = 1.25
# Factor of the patience for a whole model, which may be trained after a phase of exploration, and
# for gradients of zero: the weight of a term may rise from 0.
_LONGER: dict[Trouble, int] = {"elsewhere": 2, "zero": 2}
# The same for layers that no gradient reaches beside trained ones, not before them: the loop may
# update them by hand once in many steps of the others, as TRPO does its actor.
_BESIDE = 8

# Recurrent weights, by the names of torch.
_RECURRENT = re.compile(r"\.weight_hh(_l\d+(_reverse)?)?$")


class UntrainedParameters(Rule):
    """Some parameters are not trained, although they should be.

    For weights that are equal at ``patience`` consecutive checks while others of their model
    change, the rule determines why (`ParameterStates`): no optimizer has them, no gradient reaches
    them, or their updates are zero although their gradients are not. So it does if no gradient has
    reached any parameter of an optimizer since the start, and if the gradients of some weights have
    been exactly zero since the start in a training that learns with the others; if these are the
    recurrent weights of a model that gets sequences, whatever it learns. Frozen weights
    (``requires_grad=False``) are intended, unless they are the greater part of their model, still
    have the random initial values of their layers (``RunRecord.fresh``), and the training learns
    less than it should, or nothing by its end. Tied weights count as one. Zero updates in spite of
    gradients are "info": others tell why, where it is a fault.

    With the default severity, findings are "stop" if more than half of the parameters are affected
    in a training that learns less than it should, and "warning" otherwise. Cases that may be
    intended are "info" unless the training learns less than it should: only the last layer is in an
    optimizer (a new head is trained; not if the other layers get gradients and still have their
    random initial values; not a single parameter beside layers that get gradients, in a training
    that ends without a good outcome), no weight is (an input is trained; but not if the optimizer
    has as many tensors and elements as the model, and so those of a copy), modules are unused (no
    gradient reaches them, but those before them, or they are below 1 % of the parameters), or
    weights stop changing during the run. Also fires if no optimizer takes a step at all, which
    shows as evaluations with equal results before the first step, and at the end of the run as
    gradients that were cleared after each of 40 backward passes (``state/unapplied``, PyTorch).

    Args:
        every: train steps between checks.
        patience: number of consecutive checks; twice as many if no gradient reaches any parameter,
            and for gradients of zero, except of recurrent weights alone; eight times as many for
            layers without a gradient beside or after trained ones, which a loop may update by hand
            from time to time. One is enough for weights that no optimizer has, if there is one
            model and one optimizer: another optimizer may take its first step later; and for
            weights that no gradient reaches at the end of a run that was too short for more.
    """

    fault = "untrained_parameters"
    # An optimizer with other parameters does not clear the gradients of these.
    consequences = (
        "outcome",
        "no_signal",
        "gradients_not_cleared",
        "learning_rate_too_low",
    )
    position = 210
    inapplicable = Reasons(xgboost=NO_NETWORK, sklearn="an estimator trains all that it has")

    def __init__(self, every: int = 20, patience: int = 2) -> None:
        require_at_least(1, every=every, patience=patience)
        self.every = every
        self.patience = patience
        self.outcome = Outcome()
        self.batches = Batches()
        self.parameters = ParameterStates(every)
        self.needs = (
            Need("losses", modes=("train", "eval")),
            Need("state", every=every, required=False),
        )
        # Whether the model gets sequences.
        self._sequences = False
        self._reported: dict[Trouble, Severity] = {}
        self._last: Step | None = None
        # Parameters that no optimizer has, even one without a step; whether there is one model with
        # one optimizer, and whether that is known of PyTorch; tensors and elements of each.
        self._unoptimized: frozenset[str] = frozenset()
        self._alone = self._torch = False
        self._held: list[tuple[float, float]] = []
        # Evaluations before the first train step; None afterwards.
        self._evaluations: list[dict[str, float]] | None = []
        # Whether it was reported that no optimizer takes a step.
        self._stepless = False

    def on_record(self, info: RunRecord) -> None:
        """Read the sizes of the optimizers."""
        self._unoptimized = frozenset(info.unoptimized)
        models = sum("model" in facts[2:] for facts in info.modules.values())
        self._torch = info.framework == "torch" and bool(info.optimizers)
        self._alone = models == len(info.optimizers) == 1
        self._held = [
            (optimizer["tensors"], optimizer["parameters"])
            for optimizer in info.optimizers
            if all(isinstance(optimizer.get(key), int) for key in ("tensors", "parameters"))
        ]

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if step.rank != 0 or step.mode == "predict":
            return None
        if step.mode == "eval":
            return self._without_steps(step)
        if (finding := self._unapplied(step)) is not None:
            return finding
        self._evaluations = None
        self._sequences |= any(map(_of_steps, self.batches.inputs.values()))
        if not self.parameters.checked:
            return None
        self._last = step
        return self._judge(step, ended=False)

    def finish(self) -> Finding | None:
        """See `Rule.finish`."""
        return None if self._last is None else self._judge(self._last, ended=True)

    def _judge(self, step: Step, *, ended: bool) -> Finding | None:
        """Return the finding at a check, if there is news."""
        cut = [name for name, one in self.parameters.states.items() if one.trouble == "cut_off"]
        beside = not ended and self._beside() and not (cut and self._lost("cut_off", cut))
        states = {
            name: state
            for name, state in self.parameters.states.items()
            if state.checks
            >= self._enough(
                state.trouble,
                short=ended and self._is_short(step),
                beside=beside,
                awaited=self._torch and not state.moved and name not in self._unoptimized,
            )
        }
        for trouble in ADVICE:
            names = [name for name, state in states.items() if state.trouble == trouble]
            severity = self._severity(trouble, names, states, ended=ended) if names else None
            if severity is not None and self._is_news(trouble, severity):
                return self._finding(step, trouble, names, states, severity, ended=ended)
        return self._frozen(step, ended=ended)

    def _frozen(self, step: Step, *, ended: bool) -> Finding | None:
        """Return the finding of frozen weights that were never trained, if there is news."""
        names, share = self.parameters.held, self.parameters.held_share
        verdict = self.outcome.final() if ended else self.outcome.verdict()
        bad = verdict.kind == "poor" or (
            ended and verdict.kind != "good" and self.outcome.nothing_learned()
        )
        if share <= _GREATER_PART or not bad or not self._is_news("frozen", self.without_stop):
            return None
        return self.found(
            step,
            since=0,
            tensor=names[0],
            statistic="l2",
            value=share,
            threshold=_GREATER_PART,
            confidence=_CONFIDENCE,
            seen=f"{len(names)} weights ({share:.0%} of the parameters) do not change: "
            + listed(names)
            + (f"; {verdict.reason}" if verdict.reason else ""),
            cause=ADVICE["frozen"].cause,
            remedy=ADVICE["frozen"].remedy,
            severity=self.without_stop,
            evidence={"trouble": "frozen", "names": names, "share": share},
        )

    def _is_short(self, last: Step) -> bool:
        """Return whether a run that ended after a check was too short for more checks."""
        return last.step < (self.patience + 1) * self.every

    def _beside(self) -> bool:
        """Return whether the layers that no gradient reaches are not the first ones of a model."""
        states = self.parameters.states
        cut = [name for name, state in states.items() if state.trouble == "cut_off"]
        layers = self.parameters.layers(cut) if cut else []
        reached = [place for place, name in enumerate(layers) if name not in cut]
        return any(name in cut for name in layers[min(reached, default=len(layers)) :])

    def _lost(self, trouble: Trouble, names: list[str]) -> bool:
        """Return whether weights stopped in mid-run as nobody means it; of one optimizer alone.

        Either the optimizer no longer has them, or nearly all stopped, but not those before some
        that are still trained, such as those of norms.
        """
        if not self._alone or not all(self.parameters.states[name].moved for name in names):
            return False
        nearly_all = trouble == "cut_off" and self._share(names) > _NEARLY_ALL
        return trouble == "left_out" or (nearly_all and self._beside())

    def _enough(self, trouble: Trouble, *, short: bool, beside: bool, awaited: bool) -> int:
        """Return the number of consecutive checks that show a trouble.

        Args:
            short: whether the run has ended before more checks.
            beside: whether layers without a gradient stand beside or after trained ones.
            awaited: whether an optimizer without a step so far may have the weight.
        """
        if trouble == "left_out" and awaited:
            return self.patience * _BESIDE
        if trouble == "left_out" and self._alone:
            return 1
        if trouble == "cut_off":
            return 1 if short else self.patience * (_BESIDE if beside else 1)
        if trouble == "zero" and self._forgets():
            return self.patience
        return self.patience * _LONGER.get(trouble, 1)

    def _is_news(self, trouble: Trouble, severity: Severity) -> bool:
        """Record a severity; return whether it exceeds the one already reported."""
        before = self._reported.get(trouble)
        if before is not None and _ORDER.index(before) >= _ORDER.index(severity):
            return False
        self._reported[trouble] = severity
        return True

    def _severity(
        self,
        trouble: Trouble,
        names: list[str],
        states: dict[str, ParameterState],
        *,
        ended: bool,
    ) -> Severity | None:
        """Return the severity of a trouble of some weights; None to report nothing."""
        kind = (self.outcome.final() if ended else self.outcome.verdict()).kind
        if trouble == "unmoved":
            # Another rule names why, where it is a fault.
            return "info"
        if trouble == "zero" and self._forgets():
            return self.without_stop
        if trouble == "zero" and kind != "good":
            # Dead or equal units are more likely.
            return None
        if kind == "poor":
            return self.severity if self._share(names) > _GREATER_PART else self.without_stop
        sizes, layers = list(self.parameters.sizes), self.parameters.layers(names)
        if self._lost(trouble, names):
            return self.without_stop
        meant = all(states[name].moved for name in names)
        if trouble == "left_out":
            # Only a head is trained, or not the model but its input.
            unheld = self.parameters.none_held and not self._twin()
            # A single parameter beside the layers is no head. A prompt or a temperature may be
            # trained alone, but then the run ends well, or needs no gradient of the layers.
            graded = states[names[0]].graded
            well = not ended or kind == "good" or not graded
            head = names == sizes[:-1] and (sizes[-1] in layers or well)
            meant |= (head and not (graded and self.parameters.are_fresh(names))) or unheld
        elif trouble in ("cut_off", "zero"):
            # What cuts the graph cuts off the first layers. Few parameters alone may be unused.
            meant |= layers[0] not in names or self._share(names) < _FEW
        return "info" if meant else self.without_stop

    def _forgets(self) -> bool:
        """Return whether sequences are given to recurrent layers that have no use of their state.

        The gradient of their recurrent weights alone is zero then, whatever else is learned. Where
        the model gets no sequences, a recurrent layer of single steps is meant.
        """
        states = self.parameters.states
        zero = [name for name, state in states.items() if state.trouble == "zero"]
        return self._sequences and bool(zero) and all(map(_RECURRENT.search, zero))

    def _twin(self) -> bool:
        """Return whether an optimizer has as many tensors and elements as the model without one.

        Then it has the parameters of another such model, and not an input on purpose.
        """
        least = math.fsum(self.parameters.sizes.values())
        return any(
            tensors == len(self._unoptimized) > 1 and least <= elements <= _BIASES * least
            for tensors, elements in self._held
        )

    def _share(self, names: list[str]) -> float:
        sizes = self.parameters.sizes
        return math.fsum(sizes[name] for name in names) / math.fsum(sizes.values())

    def _finding(
        self,
        step: Step,
        trouble: Trouble,
        names: list[str],
        states: dict[str, ParameterState],
        severity: Severity,
        *,
        ended: bool,
    ) -> Finding:
        share = self._share(names)
        since = min(states[name].since for name in names)
        stopped = all(states[name].moved for name in names)
        graded = trouble == "left_out" and any(states[name].graded for name in names)
        advice = LOST[trouble] if self._lost(trouble, names) else ADVICE[trouble]
        if trouble == "zero" and self._forgets():
            advice = FORGETFUL
        reason = (self.outcome.final() if ended else self.outcome.verdict()).reason
        verb = "get a gradient" if trouble in ("cut_off", "zero") else "change"
        return self.found(
            step,
            since=since,
            tensor=names[0],
            statistic="l2",
            value=share,
            threshold=0.0,
            confidence=_CONFIDENCE,
            seen=f"{len(names)} of {len(self.parameters.sizes)} weights ({share:.0%} of the "
            f"parameters) {'no longer' if stopped else 'do not'} {verb}: {listed(names)}"
            + (f"; {reason}" if severity == "stop" and reason else ""),
            cause=advice.cause
            + (", though gradients are computed for them" if graded else "")
            + (RANDOM if graded and self.parameters.are_fresh(names) else ""),
            remedy=advice.remedy,
            severity=severity,
            evidence={"trouble": trouble, "names": names, "share": share},
        )

    def _without_steps(self, step: Step) -> Finding | None:
        """Check an evaluation before the first optimizer step."""
        if self._evaluations is None or step.step:
            return None
        scalars = {**step.scalars_of("losses"), **step.scalars_of("metrics")}
        if not scalars:
            return None
        if self._evaluations and not _equal(self._evaluations[-1], scalars):
            self._evaluations.clear()
        self._evaluations.append(scalars)
        if len(self._evaluations) != _EVALUATIONS:
            return None
        name, value = next(iter(scalars.items()))
        self._stepless = True
        return self._missing(
            step,
            (name, value),
            f"{_EVALUATIONS} evaluations had equal results ({name} {value:.4g}), and no optimizer "
            "has taken a step",
            "optimizer.step() is not called, or the optimizer belongs to another model",
            {"evaluations": self._evaluations},
        )

    def _unapplied(self, step: Step) -> Finding | None:
        """Return the finding in gradients that were cleared, but never applied."""
        for name, passes in step.scalars_of("state").items():
            if not self._stepless and name.endswith(_UNAPPLIED):
                self._stepless = True
                return self._missing(
                    step,
                    (name, passes),
                    f"no optimizer has taken a step: the gradients of {passes:.0f} backward passes "
                    "were cleared, and no weight has changed",
                    "optimizer.step() is not called",
                    {"passes": passes},
                )
        return None

    def _missing(
        self, step: Step, value: tuple[str, float], seen: str, cause: str, evidence: dict[str, Any]
    ) -> Finding:
        """Return the finding of a training without a step.

        Args:
            step: where it shows.
            value: name and value of the scalar that shows it.
        """
        return self.found(
            step,
            since=0,
            tensor=value[0],
            statistic="value",
            value=value[1],
            threshold=value[1],
            confidence=_CONFIDENCE,
            seen=seen,
            cause=cause,
            remedy="call optimizer.step() after each loss.backward()",
            severity=self.without_stop,
            evidence=evidence,
        )


def _of_steps(inputs: NDArray[Any]) -> bool:
    """Return whether a batch [rows, ...] has several sequences of several tokens or vectors."""
    wide = 2 if inputs.dtype.kind in "iu" else 3
    return inputs.ndim == wide and min(inputs.shape[:2]) > 1


def _equal(one: dict[str, float], other: dict[str, float]) -> bool:
    """Return whether two evaluations have equal results."""
    return one.keys() == other.keys() and all(
        math.isclose(value, other[name], rel_tol=_SAME) for name, value in one.items()
    )
