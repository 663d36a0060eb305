"""Rule: weight decay, a weight penalty or dropout is too strong to learn anything."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.bounds import require_between, require_share
from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.losses.penalty import Penalty
from vinedresser.rules.signals.outcomes.outcome import Outcome
from vinedresser.rules.signals.parameters.gradients import GradientNorms
from vinedresser.rules.signals.parameters.hyperparameters import named
from vinedresser.rules.signals.parameters.learning_rate import LearningRateSignal
from vinedresser.rules.signals.parameters.weight_decay import direct_decay, greatest_decay
from vinedresser.rules.signals.parameters.weight_scale import weight_scales
from vinedresser.rules.symptom import Symptom, SymptomRule
from vinedresser.store.finding import HOPELESS, Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# Names of hyperparameters, ignoring any prefix before a dot, case and underscores.
_DECAY = re.compile(r"(?:weight)?decay|wd|l2|lambda|reg(?:ulari[sz]ation)?(?:strength)?|alpha")
_DROPOUT = re.compile(r"drop(?:out)?(?:rate|prob|p)?")
# Divisor for a penalty: from values that were too strong (0.1 to 1 with Adam and SGD) to usual ones
# (1e-4 to 1e-2).
_DIVIDED_BY = 100.0
_USUAL_DROPOUT = 0.5
# Dropout, and share of the first size of the weights, that leave nothing to learn with.
_NO_UNITS = 0.9
_NO_WEIGHTS = 0.05
# Growth of the weights that only too long steps explain, whatever made them small afterwards.
_GROWN = 2.0
# Share of the weights that the decay removes in a step, above which seven steps halve them, and the
# share of their first norm below which it shows.
_EACH_STEP, _HALVED = 0.1, 0.5
# Weight decay that is not strong by itself: the default of AdamW.
_USUAL_DECAY = 0.01
# Ratio of a decay to the gradient of the rows from which weights vanish whatever the rows are. The
# gradient of a squared penalty is a multiple of the weights: it is all there is if the multiple is
# the same for at least half of the weights, within a tolerance, at first and when they have this
# share of their first norm. One weight alone may just be pulled to what the targets ask for, as
# that of a linear model is by a squared error.
_PULL = 2.0
_SAME, _SMALLER = 0.1, 0.8


class OverRegularisation(SymptomRule):
    """Weight decay, a weight penalty or dropout is too strong to learn anything.

    The rule computes, for each weight matrix, its root mean square relative to the first check and
    its scale (`WeightScale`: root mean square times square root of the width). Fires when the
    medians of both are below ``shrunk`` (the weights vanish), when more than ``penalty`` of the
    reported loss is not the loss of the rows (`Penalty`), or when a layer drops ``dropout`` or
    more, at ``patience`` consecutive checks, in a training that learns less than it should. Warns
    before the outcome is known if hardly any units are left, if the decay of the optimizer leaves
    hardly any weights, or if it removes a tenth of them at each step and has halved them; also if a
    penalty does that whose gradient outweighs that of the rows at the first check: it explains why
    nothing is learned, whatever the labels are. Weights
    of a healthy training grow or keep their size: with AdamW's default decay of 0.01 at a learning
    rate of 0.001, 1,000 steps without any gradient leave 0.99 of them. If a usual decay (0.01 at
    most) shrinks them because the gradient is clipped at a norm below that of the decay, the clip
    is the cause, and the fault ``learning_rate_too_low``.

    Args:
        shrunk: share of the first root mean square, and scale. The initial scale is 0.58 in
            PyTorch, 1 for Xavier and LeCun, 1.4 for He initialisation.
        penalty: share of the loss that does not come from the rows.
        dropout: share of dropped units. Srivastava et al. (JMLR 2014) keep 0.5 to 0.8 of them.
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    fault = "over_regularisation"
    consequences = ("outcome", "no_signal", "dying_relu", "vanishing_gradient", "corrupt_labels")
    position = 230
    inapplicable = Reasons(
        xgboost="what regularises too much leaves trees empty: empty_trees says so"
    )
    early_patience = 2

    @classmethod
    def can_explain(cls, cause: Finding, finding: Finding) -> bool:
        """See `Rule.can_explain`: labels seem unrelated where weights vanish whatever they are."""
        nothing = finding.statistic == "loss" and cause.evidence.get(HOPELESS) is True
        return finding.fault != "corrupt_labels" or nothing

    def __init__(
        self,
        shrunk: float = 0.3,
        penalty: float = 0.5,
        dropout: float = 0.75,
        every: int = 20,
        patience: int = 3,
    ) -> None:
        require_between(0, 1, shrunk=shrunk, penalty=penalty)
        require_share(dropout=dropout)
        super().__init__(patience)
        self.shrunk = shrunk
        self.penalty = penalty
        self.dropout = dropout
        self.every = every
        self.penalties = Penalty()
        self.rate = LearningRateSignal()
        self.needs = optional_statistics(every, weights=("l2", "std", "mean"), gradients=("l2",))
        self._gradients = GradientNorms()
        self._modules: Mapping[str, list[str]] = {}
        self._parameters: dict[str, Any] = {}
        self._decay = self._direct = 0.0
        self._normalised = False
        self._drops: dict[str, float] = {}
        self._first: dict[str, float] = {}
        self._norms: dict[str, float] = {}
        # The largest median of the weights' sizes relative to the first.
        self._peak = 0.0
        # Gradients relative to their weights at the first check, and whether decay or penalty
        # outweighs those of the rows.
        self._multiples: dict[str, float] = {}
        self._outweighs: bool | None = None

    def begin(self, info: RunRecord) -> None:
        """Read the regularisation settings."""
        self._modules = info.modules
        self._normalised = any("norm" in kind.lower() for kind, *_ in info.modules.values())
        self._parameters = info.parameters
        self._drops = info.dropout
        self._decay, self._direct = greatest_decay(info), direct_decay(info)

    def warns_early(self, symptom: Symptom, outcome: Outcome) -> bool:
        """See `SymptomRule.warns_early`: hardly any units or weights are left."""
        if symptom.statistic == "zero_share":
            return symptom.value >= _NO_UNITS
        if symptom.statistic == "decay":
            return outcome.verdict().kind != "good"
        # Without a known decay, weights of zero may be what the targets ask for.
        if self._decay == 0 and not self._outweighs:
            return False
        gone = symptom.value < _NO_WEIGHTS and symptom.evidence.get("scale", 1.0) < _NO_WEIGHTS
        # Behind a normalisation the size of the weights does not matter.
        harmful = not self._normalised or outcome.verdict().kind != "good"
        return symptom.statistic == "std" and gone and harmful and self._peak < _GROWN

    def detect(self, step: Step) -> Symptom | None:
        """See `SymptomRule.detect`."""
        self._gradients.add(step)
        decays = self._decays(step)
        if self._outweighs is None:
            self._outweighs = self._outweighing(step)
        return self._shrinks(step) or decays or self._penalised() or self._drops_out()

    def _decays(self, step: Step) -> Symptom | None:
        """Return the symptom of a decay that halves the weights within a few steps."""
        shares = [
            norm / first
            for name, norm in step.reduction_of("weights", "l2").items()
            if (first := self._norms.setdefault(name, norm)) > 0
        ]
        share = self._direct * min(self.rate.captured.values(), default=0.0)
        left = statistics.median(shares) if shares else 1.0
        if share < _EACH_STEP or left > _HALVED:
            return None
        return Symptom(
            tensor=next(iter(self._norms)),
            statistic="decay",
            value=share,
            threshold=_EACH_STEP,
            confidence=0.95,
            seen=f"each step removes {share:.0%} of the weights (rate times weight decay), "
            f"of whose norms {left:.2g} are left (median of {len(shares)} tensors)",
            cause=f"a weight decay of {self._decay:g} pulls the weights to zero faster than the "
            "data can counteract",
            remedy=self._less_decay(),
            evidence={"left": left},
            correction=self._corrected_decay(),
        )

    def _outweighing(self, step: Step) -> bool | None:
        """Return whether decay or penalty outweighs the gradient of the rows; None if unknown."""
        gradients, norms = (step.reduction_of(one, "l2") for one in ("gradients", "weights"))
        multiples = {
            name: gradient / norm
            for name, norm in norms.items()
            if norm > 0 and (gradient := gradients.get(name.replace("weights", "gradients", 1)))
        }
        if not self._multiples:
            self._multiples = multiples
            known = multiples and self._decay > 0 and not self._direct
            return self._decay > _PULL * statistics.median(multiples.values()) if known else None
        shrunk = [name for name in multiples if norms[name] < _SMALLER * self._norms[name]]
        if 2 * len(shrunk) < len(self._multiples):
            return None
        level = statistics.median(multiples[name] for name in shrunk)
        same = [
            all(
                abs(each.get(name, 0.0) - level) < _SAME * level
                for each in (self._multiples, multiples)
            )
            for name in shrunk
        ]
        return 2 * sum(same) >= len(self._multiples) and sum(same) > 1

    def _shrinks(self, step: Step) -> Symptom | None:
        scales = weight_scales(step, self._modules)
        shares = {}
        for name, one in scales.items():
            first = self._first.setdefault(name, one.rms)
            if first > 0:
                shares[name] = one.rms / first
        if not shares:
            return None
        share = statistics.median(shares.values())
        self._peak = max(self._peak, share)
        scale = statistics.median(one.scale for one in scales.values())
        if not (share < self.shrunk and scale < self.shrunk):
            return None
        smallest = min(shares, key=shares.__getitem__)
        known = self._decay > 0
        since = ", whose gradient it outweighed from the first step on" if self._outweighs else ""
        symptom = Symptom(
            tensor=smallest,
            statistic="std",
            value=share,
            threshold=self.shrunk,
            confidence=0.9 if known else 0.7,
            seen=f"the weights have shrunk to {share:.2g} of their initial size (median of "
            f"{len(shares)} tensors)",
            cause=f"a weight {f'decay of {self._decay:g}' if known else 'penalty'} pulls the "
            f"weights to zero faster than the data can counteract{since}",
            remedy=self._less_decay(),
            evidence={"shares": shares, "scale": scale, HOPELESS: bool(self._outweighs)},
            correction=self._corrected_decay(),
        )
        return self._clipped(symptom) or symptom

    def _clipped(self, symptom: Symptom) -> Symptom | None:
        """Return the symptom of a usual decay to which a clipped gradient leaves the weights."""
        if not 0 < self._decay <= _USUAL_DECAY or not self._gradients.clipped:
            return None
        norm = self._gradients.norms[-1][1]
        pull = self._decay * math.hypot(*self._norms.values())
        if norm >= pull:
            return None
        return replace(
            symptom,
            cause=f"the gradient is clipped to a norm of {norm:.2g}, below the {pull:.2g} of a "
            f"weight decay of {self._decay:g}: the decay pulls the weights to zero, and the data "
            "cannot counteract",
            remedy="clip at a larger norm, above that of usual gradients (1 is common)",
            correction={},
            fault="learning_rate_too_low",
        )

    def _penalised(self) -> Symptom | None:
        found = self.penalties.greatest()
        if found is None or not found[1] > self.penalty:
            return None
        name, share = found
        return Symptom(
            tensor=name,
            statistic="share",
            value=share,
            threshold=self.penalty,
            confidence=0.8,
            seen=f"{share:.0%} of {name} is not the loss of the rows",
            cause="weight regularisers make up most of the loss, so they are learned instead of "
            "the data",
            remedy=self._less_decay(),
            evidence={"share": share},
            correction=self._corrected_decay(),
        )

    def _drops_out(self) -> Symptom | None:
        path = max(self._drops, key=self._drops.__getitem__, default="")
        rate = self._drops.get(path, 0.0)
        if rate < self.dropout:
            return None
        name = named(self._parameters, _DROPOUT)
        return Symptom(
            tensor=f"outputs/{path}",
            statistic="zero_share",
            value=rate,
            threshold=self.dropout,
            confidence=0.8,
            seen=f"{path} drops {rate:.0%} of its units",
            cause="this dropout rate leaves too few units to learn from",
            remedy=f"set {name or 'dropout'} to {_USUAL_DROPOUT} or less instead of {rate:g}",
            evidence={"dropout": dict(self._drops)},
            correction={name: _USUAL_DROPOUT} if name else {},
        )

    def _less_decay(self) -> str:
        found = self._corrected_decay()
        if not found:
            return f"divide the weight penalty by {_DIVIDED_BY:g}, or remove it"
        ((name, value),) = found.items()
        return f"set {name} to {value:g} instead of {value * _DIVIDED_BY:g}"

    def _corrected_decay(self) -> dict[str, float]:
        """Return a smaller decay by hyperparameter name; {} if none is known."""
        name = named(self._parameters, _DECAY)
        value = self._decay if name is None else float(self._parameters[name])
        if value <= 0:
            return {}
        return {name or "weight_decay": float(f"{value / _DIVIDED_BY:.2g}")}
