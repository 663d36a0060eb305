"""Find parameters that are not trained, and the reason."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from vinedresser.rules.need import optional_statistics
from vinedresser.rules.signals.base import Signal
from vinedresser.rules.signals.parameters.model_names import ModelNames
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

__all__ = ["ParameterState", "ParameterStates", "Trouble"]

# Change of a mean, as a share of the standard deviation, that is rounding.
_ROUNDING = 1e-4
# Share of the elements of weights that tells where all of them come from.
_FRESH = 0.9

# No optimizer has it; no gradient reaches it; it has a gradient, but its update is zero; no
# gradient has reached any parameter; its gradient has been exactly zero since the start; it is
# frozen.
Trouble = Literal["left_out", "cut_off", "unmoved", "elsewhere", "zero", "frozen"]


class ParameterState(NamedTuple):
    """A parameter that is not trained at present.

    Attributes:
        trouble: reason.
        since: step of the first of the consecutive checks with this reason.
        checks: number of these checks.
        moved: whether the parameter changed before.
        graded: whether a gradient reaches it.
    """

    trouble: Trouble
    since: int
    checks: int
    moved: bool
    graded: bool


class ParameterStates(Signal):
    """The weights that stand still while others of their model are trained.

    A check is a train step at which weights, updates and gradients were captured and some weight
    had a non-zero update. A weight whose norm, mean and standard deviation are the same as at the
    previous check stands still because it has no update (no optimizer has it), no gradient, or a
    non-zero gradient and a zero update. A weight whose gradient has been exactly zero at each check
    since the start counts, too, if another weight of its model has another gradient, and if nothing
    but weight decay moves it. A gradient that has become zero is not reported.
    Frozen weights are ignored, and so are models without any update, such as teachers and averages.
    Of several optimizers, one may take steps without any gradient: its model is not reached.
    Where no weight at all had a non-zero update, weights that no optimizer has stand still, too.
    If no step so far had any gradient, although optimizers took steps, all weights with updates
    stand still because the loss depends on others.

    Args:
        every: train steps between two checks.

    Attributes:
        checked: whether the last step was a check.
        states: by full name of a weight, for weights that stand still.
        sizes: number of elements of each trainable weight by full name, in the order of the
            modules.
        held: frozen weights that still have the random initial values of their layers and have not
            changed since, in models with trainable weights.
        held_share: their share of the elements of the weights.
        none_moves: whether gradients arrive, but no optimizer updated any weight at the last check.
        none_held: whether, besides, no optimizer has any weight: it may train something else on
            purpose, such as an input.
    """

    def __init__(self, every: int = 20) -> None:
        self.every = every
        self.needs = optional_statistics(
            every, weights=("l2", "std", "mean"), updates=("l2",), gradients=("l2",)
        )
        self.checked = False
        self.states: dict[str, ParameterState] = {}
        self.sizes: dict[str, float] = {}
        self.held: list[str] = []
        self.held_share = 0.0
        self.none_moves = False
        self.none_held = False
        self._frozen: frozenset[str] = frozenset()
        self._fresh: frozenset[str] = frozenset()
        self._places: dict[str, int] = {}
        self._roots: frozenset[str] = frozenset()
        self._models = ModelNames()
        # Whether there are several optimizers.
        self._several = False
        self._last: dict[str, tuple[float, ...]] = {}
        self._moved: set[str] = set()
        # Weights that have had a gradient other than zero.
        self._signalled: set[str] = set()
        # Whether a gradient has reached a parameter, and number of checks before.
        self._graded = False
        self._idle = 0

    def on_record(self, info: RunRecord) -> None:
        """Read the frozen parameters and the order of the modules."""
        self._frozen = frozenset(info.frozen)
        self._fresh = frozenset(info.fresh)
        self._places = {path: place for place, path in enumerate(info.modules)}
        self._roots = frozenset(path for path, words in info.modules.items() if words[2:])
        self._models = ModelNames(info)
        self._several = len(info.optimizers) > 1

    def update(self, step: Step) -> None:
        """See `Signal.update`."""
        self.checked = False
        if step.rank != 0 or step.mode != "train":
            return
        self._look_for_any(step)
        norms = step.reduction_of("weights", "l2")
        updates = step.reduction_of("updates", "l2")
        gradients = step.reduction_of("gradients", "l2")
        moving = {self._models.of(name) for name, norm in updates.items() if norm != 0}
        if not norms or not gradients:
            self.checked = bool(self._idle and norms)
            return
        self.none_moves = not moving
        self.none_held = not updates
        unreached = self._unreached(updates, gradients) if moving else set[str]()
        self.checked = True
        self._measure(step, norms)
        signalled = self._note_signals(gradients)
        for name in list(self.states):
            if name not in self.sizes:
                del self.states[name]
        for name in self.sizes:
            now = tuple(step.reduction_of("weights", word)[name] for word in ("l2", "std", "mean"))
            before = self._last.get(name)
            still = before == now
            if before is not None and not still:
                self._moved.add(name)
            self._last[name] = now
            path = _path(name)
            trouble = _trouble(updates.get(f"updates/{path}"), gradients.get(f"gradients/{path}"))
            model = self._models.of(name)
            if trouble == "cut_off" and model in unreached:
                trouble = "elsewhere"
            others_move = model in moving | unreached
            # With no update at all, a learning rate may be 0 so far.
            others_move |= self.none_moves and trouble == "left_out"
            if trouble is None and name not in self._signalled and model in signalled:
                # It may be trained in the steps between two checks.
                trouble, still = "zero", before is not None and _only_shrank(before, now)
            # The first check has no previous values.
            if trouble is None or not still or not others_move:
                self.states.pop(name, None)
                continue
            known = self.states.get(name)
            same = known is not None and known.trouble == trouble
            self.states[name] = ParameterState(
                trouble,
                known.since if known is not None and same else step.step,
                known.checks + 1 if known is not None and same else 1,
                name in self._moved and trouble != "zero",
                f"gradients/{path}" in gradients,
            )

    def layers(self, names: Collection[str]) -> list[str]:
        """Return the trainable weights of some models, in the order of their modules.

        A parameter that a model holds itself, such as the spread of a policy, is in no layer: it is
        left out, unless all weights are such.

        Args:
            names: full names of weights of these models.
        """
        models = {self._models.of(name) for name in names}
        every = [name for name in self.sizes if self._models.of(name) in models]
        modules = self._places.keys() - self._roots
        return [one for one in every if _path(one).rpartition(".")[0] in modules] or every

    def are_fresh(self, names: Collection[str]) -> bool:
        """Return whether weights still have the random initial values of their layers.

        Small ones may tell nothing: 90 % of the elements must.

        Args:
            names: full names of trainable weights.
        """
        fresh = math.fsum(self.sizes[name] for name in names if name in self._fresh)
        return fresh >= _FRESH * math.fsum(self.sizes[name] for name in names)

    def _note_signals(self, gradients: Mapping[str, float]) -> set[str]:
        """Note which weights have had a gradient; return the models with one at this check."""
        # Also NaN: nothing is known of such a gradient.
        now = [name for name in self.sizes if gradients.get(f"gradients/{_path(name)}") != 0]
        self._signalled.update(now)
        return {self._models.of(name) for name in now if f"gradients/{_path(name)}" in gradients}

    def _unreached(self, updates: Mapping[str, float], gradients: Mapping[str, float]) -> set[str]:
        """Return the models that no gradient reaches, although their own optimizer took the step.

        A weight has an update in the steps of its optimizer only.
        """
        if not self._several:
            return set()
        optimized = {self._models.of(name) for name in updates}
        updated = {self._models.of(name) for name, norm in updates.items() if norm != 0}
        return optimized - updated - {self._models.of(name) for name in gradients}

    def _look_for_any(self, step: Step) -> None:
        """Note whether any gradient has reached any parameter of an optimizer."""
        updates = step.reduction_of("updates", "l2")
        if not updates or self._graded:
            return
        if any(updates.values()) or step.reduction_of("gradients", "l2"):
            self._graded = True
            if self._idle:
                self.states = {}
            return
        self._idle += 1
        norms = step.reduction_of("weights", "l2")
        self._measure(step, norms)
        self.states = {
            name: ParameterState("elsewhere", 0, self._idle, moved=False, graded=False)
            for name in self.sizes
            if f"updates/{_path(name)}" in updates
        }

    def _measure(self, step: Step, norms: Mapping[str, float]) -> None:
        """Determine the trainable weights and their sizes."""
        stds, means = step.reduction_of("weights", "std"), step.reduction_of("weights", "mean")
        found, frozen = {}, {}
        for name, norm in norms.items():
            if name not in stds or name not in means:
                continue
            rms = math.hypot(stds[name], means[name])
            size = (norm / rms) ** 2 if 0 < rms < math.inf and norm < math.inf else math.nan
            if name not in self._frozen:
                found[name] = size if math.isfinite(size) else self.sizes.get(name, 1.0)
            elif math.isfinite(size):
                frozen[name] = size
                if self._last.setdefault(name, now := (norm, stds[name], means[name])) != now:
                    self._moved.add(name)
        self.sizes = dict(sorted(found.items(), key=lambda one: self._place(one[0])))
        trained = {self._models.of(name) for name in self.sizes}
        frozen = {name: one for name, one in frozen.items() if self._models.of(name) in trained}
        self.held = [name for name in frozen if name in self._fresh - self._moved]
        everything = math.fsum((*self.sizes.values(), *frozen.values()))
        self.held_share = math.fsum(frozen[name] for name in self.held) / max(everything, 1.0)

    def _place(self, name: str) -> int:
        path = _path(name).rpartition(".")[0]
        return self._places.get(path, len(self._places))


def _only_shrank(before: tuple[float, ...], now: tuple[float, ...]) -> bool:
    """Return whether all elements of a weight were multiplied by one factor, at most 1.

    Args:
        before: l2 norm, standard deviation and mean.
        now: the same at a later step.
    """
    factor = now[0] / before[0] if before[0] > 0 else 1.0
    return factor <= 1 and abs(now[2] - factor * before[2]) <= _ROUNDING * now[1]


def _path(name: str) -> str:
    """Return the full name of a tensor without its collection."""
    return name.partition("/")[2]


def _trouble(update: float | None, gradient: float | None) -> Trouble | None:
    """Return why a weight stands still, given the l2 norms of its update and gradient."""
    if update is None:
        return "left_out"
    if gradient is None:
        return "cut_off"
    return "unmoved" if update == 0 and gradient > 0 else None
