"""Rule: boosted trees that are deep enough to learn single rows by heart."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from vinedresser.errors import ConfigError
from vinedresser.rules.base import Rule
from vinedresser.rules.need import Need
from vinedresser.rules.patience import Patience
from vinedresser.rules.trees.ensemble import Ensemble, tree_sizes
from vinedresser.store.finding import Finding

if TYPE_CHECKING:
    from vinedresser.store.reading.step import Step
    from vinedresser.store.records import RunRecord

__all__ = ["TreeDepth"]

_DEPTH = re.compile(r"trees/(?P<prefix>[^\[\]/]*)depth(?P<group>\[\d+\])?")
# XGBoost's default. Hastie, Tibshirani and Friedman (2009, 10.11) find 4 to 8 leaves enough.
_USUAL = 6


class _Tree(NamedTuple):
    """The deepest tree of a round."""

    name: str
    depth: int
    leaves: int


class TreeDepth(Rule):
    """The newest trees of boosting are too deep, and evaluation data is predicted far worse.

    A tree is too deep when its longest way from the root to a leaf has more than ``depth`` splits
    and it has more than ``leaves`` leaves: a tree that grows best leaf first may be long and lean.
    Where there are evaluation losses, they must be ``gap`` times the training loss at least: much
    data bears deep trees. Forests, whose trees are deep by design, are left alone.

    Args:
        depth: splits from the root to the deepest leaf, over which it fires.
        leaves: of a tree, over which it fires; those of a full tree of depth 6.
        gap: evaluation loss over training loss, from which it fires.
        every: rounds from one look to the next.
        patience: looks in a row.
    """

    severity = "warning"
    fault = "tree_depth"

    def __init__(
        self,
        depth: int = 10,
        leaves: int = 64,
        gap: float = 1.5,
        every: int = 10,
        patience: int = 2,
    ) -> None:
        for name, value in (("depth", depth), ("leaves", leaves), ("every", every)):
            if value < 1:
                raise ConfigError(f"{name} = {value}: must be at least 1")
        if not gap > 0:
            raise ConfigError(f"gap = {gap:g}: must be greater than 0")
        self.depth = depth
        self.leaves = leaves
        self.gap = gap
        self.every = every
        self.patience = patience
        self.needs = (
            tree_sizes(every),
            Need("losses", modes=("train", "eval"), required=False),
        )
        self._forest = False
        self._settings: Ensemble | None = None
        self._losses: dict[str, float] = {}
        self._patience = Patience(patience)
        self._fired = False

    def begin(self, info: RunRecord) -> None:
        """Take note of what grows the trees."""
        self._settings = Ensemble(info)
        self._forest = self._settings.forest

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        if self._fired or self._forest or step.rank != 0 or step.mode == "predict":
            return None
        self._take_losses(step)
        tree = _deepest(step)
        if step.mode != "train" or tree is None:
            return None
        deep = tree.depth > self.depth and tree.leaves > self.leaves and self._parted()
        if not self._patience.add(step.step, seen=deep):
            return None
        self._fired = True
        return self._finding(step, tree)

    def _take_losses(self, step: Step) -> None:
        losses = [value for value in step.scalars_of("losses").values() if math.isfinite(value)]
        if losses:
            self._losses[step.mode] = min(losses) if step.mode == "eval" else max(losses)

    def _parted(self) -> bool:
        """Say whether evaluations are far worse; also where there are none, or of another sign."""
        train, other = self._losses.get("train"), self._losses.get("eval")
        if train is None or other is None or min(train, other) < 0:
            return True
        return other >= self.gap * train

    def _finding(self, step: Step, tree: _Tree) -> Finding:
        train, other = self._losses.get("train"), self._losses.get("eval")
        compared = ""
        if train is not None and other is not None:
            compared = (
                f"; the evaluation loss is {other:.4g} where the training loss is {train:.4g}"
            )
        limit = self._settings.number("max_depth") if self._settings else None
        before = f" from {limit:g}" if limit else ""
        return self.found(
            step,
            since=self._patience.since,
            tensor=tree.name,
            statistic="depth",
            value=float(tree.depth),
            threshold=float(self.depth),
            confidence=0.8 if compared else 0.5,
            seen=f"{tree.name} is {tree.depth} in round {step.step}, with {tree.leaves} leaves"
            f"{compared}",
            cause="trees that deep tell single rows from each other",
            remedy=f"lower max_depth{before} to {_USUAL}, or raise min_child_weight (of "
            "scikit-learn min_samples_leaf), and evaluate",
            evidence={
                "leaves": tree.leaves,
                "losses": dict(self._losses),
                "looks": self._patience.looks,
            },
            correction={"max_depth": _USUAL} if limit else {},
        )


def _deepest(step: Step) -> _Tree | None:
    """Return the deepest tree of a step; None: nothing is known of trees."""
    found = []
    for name, depth in step.scalars_of("trees").items():
        matched = _DEPTH.fullmatch(name)
        if matched:
            leaves = step.scalars.get(f"trees/{matched['prefix']}leaves{matched['group'] or ''}", 0)
            found.append(_Tree(name, int(depth), int(leaves)))
    return max(found, key=lambda tree: tree.depth, default=None)
