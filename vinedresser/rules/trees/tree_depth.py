"""Rule: boosted trees are deep enough to memorise single rows."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from vinedresser.rules.applicability import TREES_ONLY
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_above, require_at_least
from vinedresser.rules.need import Need
from vinedresser.rules.patience import Patience
from vinedresser.rules.trees.ensemble import Ensemble, tree_sizes
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_DEPTH = re.compile(r"trees/(?P<prefix>[^\[\]/]*)depth(?P<group>\[\d+\])?")
# XGBoost's default. Hastie, Tibshirani and Friedman (2009, 10.11) find 4 to 8 leaves enough.
_USUAL = 6


class _Tree(NamedTuple):
    """Deepest tree of a round."""

    name: str
    depth: int
    leaves: int


class TreeDepth(OnceRule):
    """The newest boosted trees are too deep, and the evaluation loss exceeds the training loss.

    A tree is too deep if its longest path from root to leaf has more than ``depth`` splits and it
    has more than ``leaves`` leaves: best-first growth creates long but small trees. If there are
    evaluation losses, they must be at least ``gap`` times the training loss: large data sets
    justify deep trees. Forests, whose trees are deep by design, are ignored.

    Args:
        depth: maximum number of splits from root to leaf.
        leaves: maximum number of leaves; default: those of a full tree of depth 6.
        gap: minimum ratio of evaluation loss to training loss.
        every: rounds between checks.
        patience: number of consecutive checks.
    """

    severity = "warning"
    fault = "tree_depth"
    position = 500
    predecessors = ("tree_depth",)
    inapplicable = TREES_ONLY
    modes = ("train", "eval")

    def __init__(
        self,
        depth: int = 10,
        leaves: int = 64,
        gap: float = 1.5,
        every: int = 10,
        patience: int = 2,
    ) -> None:
        require_at_least(1, depth=depth, leaves=leaves, every=every)
        require_above(0, gap=gap)
        self.depth = depth
        self.leaves = leaves
        self.gap = gap
        self.every = every
        self.patience = patience
        self.needs = (tree_sizes(every), Need("losses", modes=("train", "eval"), required=False))
        self._settings: Ensemble | None = None
        self._losses: dict[str, float] = {}
        self._patience = Patience(patience)

    def begin(self, info: RunRecord) -> None:
        """Read the type of the ensemble."""
        self._settings = Ensemble(info)
        # Trees of forests are deep by design.
        self._done = self._settings.forest

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        self._take_losses(step)
        tree = _deepest(step)
        if step.mode != "train" or tree is None:
            return None
        deep = tree.depth > self.depth and tree.leaves > self.leaves and self._parted()
        if not self._patience.add(step.step, seen=deep):
            return None
        return self._finding(step, tree)

    def _take_losses(self, step: Step) -> None:
        losses = [value for value in step.scalars_of("losses").values() if math.isfinite(value)]
        if losses:
            self._losses[step.mode] = min(losses) if step.mode == "eval" else max(losses)

    def _parted(self) -> bool:
        """Return whether evaluations are much worse, or cannot be compared."""
        train, other = self._losses.get("train"), self._losses.get("eval")
        if train is None or other is None or min(train, other) < 0:
            return True
        return other >= self.gap * train

    def _finding(self, step: Step, tree: _Tree) -> Finding:
        train, other = self._losses.get("train"), self._losses.get("eval")
        compared = ""
        if train is not None and other is not None:
            compared = f"; the evaluation loss is {other:.4g}, the training loss {train:.4g}"
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
            seen=f"{tree.name} is {tree.depth} with {tree.leaves} leaves in round "
            f"{step.step}{compared}",
            cause="trees of this depth separate single rows",
            remedy=f"lower max_depth{before} to {_USUAL}, or raise min_child_weight "
            "(min_samples_leaf in scikit-learn), and evaluate",
            evidence={
                "leaves": tree.leaves,
                "losses": dict(self._losses),
                "looks": self._patience.count,
            },
            correction={"max_depth": _USUAL} if limit else {},
        )


def _deepest(step: Step) -> _Tree | None:
    """Return the deepest tree of a step, or None without tree data."""
    found = []
    for name, depth in step.scalars_of("trees").items():
        matched = _DEPTH.fullmatch(name)
        if matched:
            leaves = step.scalars.get(f"trees/{matched['prefix']}leaves{matched['group'] or ''}", 0)
            found.append(_Tree(name, int(depth), int(leaves)))
    return max(found, key=lambda tree: tree.depth, default=None)
