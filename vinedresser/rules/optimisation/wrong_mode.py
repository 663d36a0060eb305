"""Rule: a model is trained in evaluation mode, or evaluated in training mode."""

from __future__ import annotations

from typing import Any, NamedTuple

from vinedresser.rules.applicability import NO_NETWORK, Reasons
from vinedresser.rules.base import Rule
from vinedresser.rules.bounds import require_at_least
from vinedresser.rules.need import Need, optional_statistics
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.store.finding import Finding, Severity
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_STATE = "training"
_RUNNING_MEANS = ("running_mean", "moving_mean")
# Train steps between evaluations; more frequent ones have another purpose, such as selecting rows.
_FEWEST_STEPS = 5
_CONFIDENCE = 0.9


class _Call(NamedTuple):
    """What functions do in an evaluation, and why and how to prevent it."""

    seen: str
    cause: str
    remedy: str


# By name of the state that tells it.
_IN_EVALUATION = {
    "dropped": _Call(
        "dropped units",
        "a dropout is always on: it is given training=True, or attention a dropout_p, whatever the "
        "mode of the model is; so the result of an evaluation is random, and worse than that of "
        "the whole model",
        "use training=self.training (scaled_dot_product_attention: dropout_p=p if self.training "
        "else 0.0), or nn.Dropout",
    ),
    "batched": _Call(
        "normalised by the statistics of their batches",
        "batch_norm is given training=True, whatever the mode of the model is; so the result of a "
        "row depends on the other rows of its batch, and evaluations change the running statistics",
        "use training=self.training, or nn.BatchNorm1d, 2d or 3d",
    ),
}


class WrongMode(Rule):
    """A model is trained in evaluation mode, or evaluated in training mode.

    ``state/training`` is the share of modules in training mode among those that behave differently
    in training (dropout, batch norm). Fires when it is 0 at ``patience`` consecutive train checks
    of a model that an optimizer updates, or 1 in ``patience`` consecutive evaluations that report
    losses or metrics, at least five train steps apart. Shares in between are intended: frozen batch
    norm, sampling with dropout. It also fires if functions of PyTorch drop units, or normalise by
    the batch although they have running statistics, in ``patience`` consecutive evaluations of a
    model in evaluation mode (``state/dropped``, ``state/batched``), unless these pass the same
    inputs repeatedly, as Monte Carlo dropout does. A model that starts with batch norm
    statistics and never leaves evaluation mode may be intended, too: the severity is then "info"
    unless the training learns less than it should. Source: A. Karpathy's list of common mistakes
    ("you forgot to toggle train/eval mode for the net").

    Args:
        every: train steps between checks.
        patience: number of consecutive checks or evaluations.
    """

    severity: Severity = "warning"
    fault = "wrong_mode"
    consequences = ("outcome", "overfitting", "stale_statistics")
    position = 220
    inapplicable = Reasons(xgboost=NO_NETWORK, sklearn="predicting is another call than training")

    def __init__(self, every: int = 20, patience: int = 3) -> None:
        require_at_least(1, every=every, patience=patience)
        self.every = every
        self.patience = patience
        self.outcome = Outcome()
        self.needs = (
            Need("state", every=every, modes=("train", "eval"), required=False),
            # A pass that reports none is not an evaluation.
            Need("losses", modes=("train", "eval"), required=False),
            *optional_statistics(every, updates=("l2",), buffers=("l2",)),
        )
        self._dropout: tuple[str, ...] = ()
        # Train checks and evaluations at which a state was wrong in a row, by name of the state.
        self._idle: dict[str, list[int]] = {}
        self._active: dict[str, list[int]] = {}
        self._evaluation: dict[str, int] = {}
        self._was_training: set[str] = set()
        # Prefixes of models with batch norm, and names of those that started with its statistics.
        self._normed: set[str] = set()
        self._fitted: set[str] = set()
        # Evaluations in evaluation mode in which functions did so, by name of the state.
        self._calls: dict[str, list[int]] = {}
        self._reported: dict[tuple[str, str], str] = {}

    def begin(self, info: RunRecord) -> None:
        """Read the dropout layers."""
        self._dropout = tuple(info.dropout)

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if step.rank != 0 or step.mode == "predict":
            return None
        if (called := self._called(step)) is not None:
            return called
        for name, share in step.scalars_of("state").items():
            # A loop may report anything under this name.
            if name.rpartition(".")[2].rpartition("/")[2] != _STATE or not 0 <= share <= 1:
                continue
            found = self._trained(step, name, share)
            if step.mode == "eval":
                found = self._evaluated(step, name, share)
            if found is not None:
                return found
        return None

    def _trained(self, step: Step, name: str, share: float) -> Finding | None:
        """Check a model in a train step."""
        prefix = name.removeprefix("state/").removesuffix(_STATE)
        updates = step.reduction_of("updates", "l2")
        if step.mode != "train" or not any(
            update.startswith(f"updates/{prefix}") for update in updates
        ):
            return None
        means = _means(step, prefix)
        if means:
            self._normed.add(prefix)
        if share > 0:
            self._was_training.add(name)
            self._idle.pop(name, None)
            return None
        steps = self._idle.setdefault(name, [])
        if not steps and any(means):
            self._fitted.add(name)
        steps.append(step.step)
        if len(steps) < self.patience:
            return None
        meant = name in self._fitted and name not in self._was_training
        severity = self.severity
        if meant and self.outcome.verdict().kind != "poor":
            severity = "info"
        if self._reported.get((name, "train")) in (severity, self.severity):
            return None
        self._reported[name, "train"] = severity
        return self._finding(
            step,
            name,
            steps,
            share,
            severity=severity,
            seen=f"the optimizer updates the model in evaluation mode since step {steps[0]}"
            + (" (in training mode before)" if name in self._was_training else ""),
            cause=f"{self._what(prefix, trained=True)}: model.train() is not called"
            + (" again after an evaluation" if name in self._was_training else ""),
            remedy="call model.train() before the training steps, also after each evaluation "
            "(Keras: model(x, training=True))",
        )

    def _evaluated(self, step: Step, name: str, share: float) -> Finding | None:
        """Check a model in an evaluation."""
        if not (step.scalars_of("losses") or step.scalars_of("metrics")):
            return None
        steps = self._active.setdefault(name, [])
        before = self._evaluation.get(name)
        self._evaluation[name] = step.step
        if share < 1 or (before is not None and 0 < step.step - before < _FEWEST_STEPS):
            steps.clear()
            return None
        # Several data sets may be evaluated at one step.
        if step.step not in steps[-1:]:
            steps.append(step.step)
        if len(steps) < self.patience or (name, "eval") in self._reported:
            return None
        self._reported[name, "eval"] = self.severity
        prefix = name.removeprefix("state/").removesuffix(_STATE)
        return self._finding(
            step,
            name,
            steps,
            share,
            seen=f"{len(steps)} consecutive evaluations ran in training mode",
            cause=self._what(prefix, trained=False),
            remedy="call model.eval() before each evaluation and model.train() after it (Keras: "
            "model(x, training=False))",
        )

    def _called(self, step: Step) -> Finding | None:
        """Check what functions do in an evaluation in evaluation mode."""
        if step.mode != "eval" or not (step.scalars_of("losses") or step.scalars_of("metrics")):
            return None
        for state, advice in _IN_EVALUATION.items():
            name = next(
                (
                    name
                    for name, value in step.scalars_of("state").items()
                    if value == 1 and name.rpartition(".")[2].rpartition("/")[2] == state
                ),
                "",
            )
            steps = self._calls.setdefault(state, [])
            if not name:
                steps.clear()
            elif step.step not in steps[-1:]:
                steps.append(step.step)
            if len(steps) < self.patience or (name, "eval") in self._reported:
                continue
            self._reported[name, "eval"] = self.severity
            seen = f"{len(steps)} consecutive evaluations {advice.seen}, in evaluation mode"
            words = {"cause": advice.cause, "remedy": advice.remedy}
            return self._finding(step, name, steps, 1.0, seen=seen, **words)
        return None

    def _what(self, prefix: str, *, trained: bool) -> str:
        """Return the effect of the wrong mode on the modules it matters for."""
        found = []
        if any(one.startswith(prefix) for one in self._dropout):
            found.append("dropout is inactive" if trained else "dropout is still active")
        if prefix in self._normed:
            found.append(
                "batch norm neither uses nor learns the statistics of its batches"
                if trained
                else "batch norm uses and learns the statistics of the evaluated batches"
            )
        return " and ".join(found) or "some modules behave differently"

    def _finding(
        self, step: Step, name: str, steps: list[int], share: float, **words: Any
    ) -> Finding:
        return self.found(
            step,
            since=steps[0],
            tensor=name,
            statistic="value",
            value=share,
            threshold=1.0 - share,
            confidence=_CONFIDENCE,
            evidence={"steps": steps[-self.patience :]},
            **words,
        )


def _means(step: Step, prefix: str) -> list[float]:
    """Return the norms of the batch norm running means of a model."""
    norms = step.reduction_of("buffers", "l2").items()
    return [
        norm
        for name, norm in norms
        if name.startswith(f"buffers/{prefix}") and name.endswith(_RUNNING_MEANS)
    ]
