"""Rule: statistics of synchronised batch normalization differ between ranks."""

from __future__ import annotations

from dataclasses import replace

from vinedresser.rules.applicability import RANKS_OF_TORCH
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_at_least
from vinedresser.rules.need import Need
from vinedresser.rules.ranks.aligned import Aligned, deviating, told
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

# torch's, and those of detectron2 and of Synchronized-BatchNorm-PyTorch.
_TYPES = (
    "SyncBatchNorm",
    *(
        f"{word}BatchNorm{size}"
        for word in ("NaiveSync", "Synchronized")
        for size in ("1d", "2d", "3d")
    ),
    "NaiveSyncBatchNorm",
)
_STATISTICS = (".running_mean", ".running_var")


class UnsynchronisedStatistics(OnceRule):
    """The running statistics of a synchronised batch normalization differ between ranks.

    Such a layer (``SyncBatchNorm``, or one of a known class that does the same) normalizes with the
    mean and variance of the rows of all ranks, so its running statistics have the same bits on all
    of them. Fires when they differ at ``patience`` consecutive checks. Those of ordinary batch
    normalization differ in each training of several ranks, and are not looked at.

    Args:
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    severity = "warning"
    fault = "replica_divergence"
    position = 461
    inapplicable = RANKS_OF_TORCH
    left_out_of = ("boosted_trees",)

    def __init__(self, every: int = 50, patience: int = 2) -> None:
        require_at_least(1, patience=patience)
        self.every = every
        self.patience = patience
        self.needs = (
            Need(
                "synchronised_statistics",
                every,
                ("fingerprint",),
                rarer_from=0,
                types=_TYPES,
                required=False,
            ),
        )
        self._prints = Aligned[dict[str, float]]()
        self._count, self._since = 0, 0

    def begin(self, info: RunRecord) -> None:
        """Read the number of ranks."""
        self._prints.begin(info)

    def update(self, step: Step) -> Finding | None:
        """See `Rule.update`."""
        due = self._prints.world > 1 and step.mode == "train" and not step.step % self.every
        return self._once(self.watch(step)) if due and not self._done else None

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`: here, of all ranks."""
        prints = {
            name: value
            for name, value in step.reduction_of("synchronised_statistics", "fingerprint").items()
            if name.startswith("buffers/") and name.endswith(_STATISTICS)
        }
        ranks = self._prints.add(step.step, step.rank, prints) if prints else None
        if ranks is None:
            return None
        names = [name for name in ranks[0] if len({one.get(name) for one in ranks}) > 1]
        if not names:
            self._count = 0
            return None
        self._count += 1
        self._since = step.step if self._count == 1 else self._since
        if self._count < self.patience:
            return None
        odd = deviating([one.get(names[0]) for one in ranks])
        who = f"{told(odd)} differs" if odd else "the ranks differ"
        found = self.found(
            step,
            since=self._since,
            tensor=names[0],
            statistic="fingerprint",
            value=float(len(names)),
            threshold=0.0,
            confidence=0.9,
            seen=f"{names[0]}: {who} since step {self._since}; {len(names)} of {len(prints)} "
            "statistics of synchronised batch normalization differ",
            cause="the layer does not exchange its statistics with all ranks: its process group is "
            "a part of them, or it is in evaluation mode on some",
            remedy="nn.SyncBatchNorm.convert_sync_batchnorm(model) without a process group, before "
            "wrapping the model, and model.train() on all ranks",
            evidence={"kind": "unsynchronised_statistics", "tensors": names[:50]},
        )
        return replace(found, rank=odd[0] if odd else 0)
