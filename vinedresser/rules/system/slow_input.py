"""Rule: the training waits for its data."""

from __future__ import annotations

import numpy as np

from vinedresser.rules.applicability import Reasons
from vinedresser.rules.base import OnceRule
from vinedresser.rules.bounds import require_above, require_between
from vinedresser.rules.patience import Patience
from vinedresser.rules.system.input_stages import input_advice
from vinedresser.rules.system.step_times import StepTimes
from vinedresser.store.finding import Finding
from vinedresser.store.reading.step import Step
from vinedresser.store.records import RunRecord

_BLOCK = 50


class SlowInput(OnceRule):
    """Most of the time of a step passes before its forward pass begins.

    Let w be the time from the end of a step to the next forward pass (``timing/wait``) and t the
    time of the step (``timing/step``), both in seconds and summed over blocks of 50 steps. Fires
    when w / t > ``share`` and the median w > ``seconds`` in ``patience`` consecutive blocks. The
    first 20 steps are ignored.

    Of a data set of `vinedresser.data`, the finding names the stage that costs most (waiting for
    bytes, parsing, decoding) and what to change there, or that it is not the data set.

    The wait includes everything the loop does between two steps, not only data loading. Times are
    measured on the host: on a GPU, a loop that reads a loss value between two steps waits there for
    the GPU, which is computing rather than waiting for data.

    Args:
        share: minimum share of the time that passes before the forward pass.
        seconds: minimum waiting time per step, in seconds.
        patience: number of consecutive blocks.
    """

    severity = "info"
    fault = "slow_input"
    position = 470
    inapplicable = Reasons(
        xgboost="all rows are there before the first round",
        sklearn="the loop that calls partial_fit is not watched",
    )
    left_out_of = ("boosted_trees",)

    def __init__(self, share: float = 0.4, seconds: float = 0.005, patience: int = 3) -> None:
        require_between(0, 1, share=share)
        require_above(0, seconds=seconds)
        self.share = share
        self.seconds = seconds
        self.patience = patience
        self.times = StepTimes(_BLOCK)
        self._workers: object = None
        self._patience = Patience(patience)

    def begin(self, info: RunRecord) -> None:
        """Read the number of workers from the run's hyperparameters."""
        self._workers = info.parameters.get("num_workers", info.parameters.get("workers"))

    def watch(self, step: Step) -> Finding | None:
        """See `OnceRule.watch`."""
        times = self.times
        if not times.full or not np.isfinite(times.waits).any():
            return None
        known = np.isfinite(times.waits)
        waited, took = times.waits[known], times.seconds[known]
        share = float(waited.sum() / max(took.sum(), 1e-12))
        slow = share > self.share and float(np.median(waited)) > self.seconds
        if not self._patience.add(int(times.steps[0]), seen=slow):
            return None
        return self._finding(step, share, float(np.median(waited)), float(np.median(took)))

    def _finding(self, step: Step, share: float, wait: float, took: float) -> Finding:
        # Enough workers to match the computation (Little's law), plus one.
        wanted = int(np.ceil(wait / max(took - wait, 1e-3))) + 1
        workers = self._workers if isinstance(self._workers, int) else 0
        wanted = min(max(wanted, workers + 1), 16)
        now = f" from {workers}" if isinstance(self._workers, int) else ""
        stages = self.times.stages
        of_stages = input_advice(stages, wait, wanted)
        told = "" if of_stages is None else f"; {of_stages.seen}"
        return self.found(
            step,
            since=self._patience.since,
            tensor="timing/wait",
            statistic="share of the step",
            value=share,
            threshold=self.share,
            confidence=0.7,
            seen=f"a step takes {1e3 * took:.3g} ms, of which {1e3 * wait:.3g} ms pass before its "
            f"forward pass: {share:.0%} of the time since step {self._patience.since}{told}",
            cause="the training waits for data, or for other work of the loop between two steps; "
            "on a GPU also for the GPU, if the loop reads a value there"
            if of_stages is None
            else of_stages.cause,
            remedy=(
                f"prefetch data: DataLoader(num_workers={wanted}, prefetch_factor=4, "
                f"persistent_workers=True, pin_memory=True on a GPU){now and f', num_workers{now}'}"
                if of_stages is None
                else of_stages.remedy
            )
            + f"; up to {1 / (1 - share):.1f} times as fast",
            evidence={
                "seconds_per_step": took,
                "seconds_waiting": wait,
                "blocks": self._patience.count,
            }
            | ({} if of_stages is None else {"stage": of_stages.stage, "seconds_by_stage": stages}),
        )
