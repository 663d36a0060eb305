"""Rule: statistics of synchronised batch normalization differ between ranks."""

from __future__ import annotations

from vinedresser.rules.need import Need
from vinedresser.rules.patience import Patience
from vinedresser.rules.ranks.aligned import Aligned, RankRule, deviating, told
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step

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


class UnsynchronisedStatistics(RankRule):
    """The running statistics of a synchronised batch normalization differ between ranks.

    Such a layer (``SyncBatchNorm``, or one of a known class that does the same) normalizes with the
    mean and variance of the rows of all ranks, so its running statistics have the same bits on all
    of them. Fires when they differ at ``patience`` consecutive checks. Those of ordinary batch
    normalization differ in each training of several ranks, and are not looked at.

    Args:
        every: train steps between checks.
        patience: number of consecutive checks.
    """

    fault = "replica_divergence"
    position = 461

    def __init__(self, every: int = 50, patience: int = 2) -> None:
        super().__init__(patience, every)
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
        self._patience = Patience(patience)

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`: here, of all ranks."""
        prints = {
            name: value
            for name, value in step.reduction_of("synchronised_statistics", "fingerprint").items()
            if name.startswith("buffers/") and name.endswith(_STATISTICS)
        }
        ranks = self._prints.add(step, prints, self.world) if prints else None
        if ranks is None:
            return None
        names = [name for name in ranks[0] if len({rank.get(name) for rank in ranks}) > 1]
        if not self._patience.add(step.step, seen=bool(names)):
            return None
        since = self._patience.since
        odd = deviating([rank.get(names[0]) for rank in ranks])
        who = f"{told(odd)} differs" if odd else "the ranks differ"
        return self.found(
            step,
            since=since,
            rank=odd[0] if odd else 0,
            tensor=names[0],
            statistic="fingerprint",
            value=float(len(names)),
            threshold=0.0,
            confidence=0.9,
            seen=f"{names[0]}: {who} since step {since}; {len(names)} of {len(prints)} "
            "statistics of synchronised batch normalization differ",
            cause="the layer does not exchange its statistics with all ranks: its process group is "
            "a part of them, or it is in evaluation mode on some",
            remedy="nn.SyncBatchNorm.convert_sync_batchnorm(model) without a process group, before "
            "wrapping the model, and model.train() on all ranks",
            evidence={"kind": "unsynchronised_statistics", "tensors": names[:50]},
        )
