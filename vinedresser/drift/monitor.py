"""Windows of requests against a baseline, with a budget of false alarms for the monitor's life."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from vinedresser.drift.accuracy import Accuracy
from vinedresser.drift.baseline import Baseline, read_correct
from vinedresser.drift.contents import Column
from vinedresser.drift.distances import ReportedDistances
from vinedresser.drift.evidence.streams import Streams
from vinedresser.drift.limits import Judgeable, limits_of
from vinedresser.drift.sizes.change import Change
from vinedresser.drift.sizes.column_sizes import ColumnSizes
from vinedresser.drift.together import groups_of
from vinedresser.drift.verdict import (
    FeatureDrift,
    Verdict,
    answer_of,
    reasons_of,
    summary_of,
    unchanged,
)
from vinedresser.drift.windows import Window, read_window
from vinedresser.errors import DriftError
from vinedresser.store.json_values import DAMAGE

__all__ = ["DriftMonitor", "evidence_needed"]

_VERSION = 2
_NATS_PER_DECADE = math.log(10)
# Of the budget of false alarms.
_SHARES = {"columns": 0.6, "together": 0.2, "accuracy": 0.2}
_NOTHING = Change("", math.nan, math.nan, "", math.nan, math.nan, "", 0.0)


class DriftMonitor:
    """Compares windows of requests with a baseline.

    As long as the requests have not drifted, the probability that any window of the monitor's life
    raises an alarm is at most the budget, however many windows there are. Memory is constant.

    Args:
        budget: probability of a false alarm in the monitor's life, between 0 and 1.
        at_least: smallest change of numbers that is worth an alarm, in standard deviations of the
            baseline; of their spread, the factor minus 1.
        at_least_share: smallest change of shares of the rows that is worth an alarm, from 0 to 1:
            of a category, of missing values, of the accuracy; of a correlation the difference.

    Raises:
        DriftError: one of these is invalid, or the baseline has nothing to monitor.
    """

    def __init__(
        self,
        baseline: Baseline,
        *,
        budget: float = 0.01,
        at_least: float = 0.0,
        at_least_share: float = 0.0,
    ) -> None:
        if not 0 < budget < 1:
            raise DriftError(f"budget={budget!r}: expected a probability, such as 0.01")
        if not 0 <= at_least < math.inf:
            raise DriftError(f"at_least={at_least!r}: expected standard deviations, such as 0.2")
        if not 0 <= at_least_share < 1:
            raise DriftError(f"at_least_share={at_least_share!r}: expected a share, such as 0.05")
        self.baseline, self.budget = baseline, budget
        self.at_least, self.at_least_share = float(at_least), float(at_least_share)
        self._names = [column.name for column, _ in baseline.streams]
        distances = np.array([column.distance for column, _ in baseline.streams], np.int64)
        whole = 0.0 if baseline.cycle is None else baseline.cycle.whole
        self._streams = Streams(
            baseline.edges,
            distances,
            len(distances),
            known=baseline.usual,
            whole=whole,
            confirms=True,
            told=baseline.told,
        )
        self._needed = evidence_needed(budget, "columns", max(len(self._names), 1))
        self._sizes = ColumnSizes(baseline, self._needed, (self.at_least, self.at_least_share))
        self._together = groups_of(baseline)
        self._reported = {
            one.name: ReportedDistances(one.kind, baseline.sample[one.name])
            for one in baseline.columns
        }
        self._accuracy = None
        if baseline.correct is not None:
            needed = evidence_needed(budget, "accuracy", 1)
            self._accuracy = Accuracy(baseline, needed, self.at_least_share)
        self._windows = self._rows = 0
        # Features with an alarm: the windows at which their drift probably began, and the streams.
        self._alarms: dict[str, tuple[int, int]] = {}
        self._new = False

    @classmethod
    def resumed(cls, baseline: Baseline, state: Mapping[str, Any]) -> DriftMonitor:
        """Return a monitor that continues from a state, with the same verdicts.

        Args:
            state: see `state`.

        Raises:
            DriftError: it is not a state of a monitor of this baseline.
        """
        try:
            if state["version"] != _VERSION or state["baseline"] != _fingerprint(baseline):
                raise DriftError(
                    "the state is of a monitor of another baseline or version: begin a new one"
                )
            monitor = cls(
                baseline,
                budget=float(state["budget"]),
                at_least=float(state["at_least"]),
                at_least_share=float(state["at_least_share"]),
            )
            monitor._windows, monitor._rows = int(state["windows"]), int(state["rows"])
            monitor._alarms = {
                str(name): (int(since), int(stream))
                for name, (since, stream) in state["alarms"].items()
            }
            monitor._streams.resume(state["streams"])
            monitor._sizes.resume(state["sizes"])
            for group, saved in zip(monitor._together, state["together"], strict=True):
                group.directions.resume(saved)
            if monitor._accuracy is not None:
                monitor._accuracy.resume(state["accuracy"])
        except DAMAGE as error:
            raise DriftError(f"not a state of a drift monitor: {error}") from error
        return monitor

    def state(self) -> dict[str, Any]:
        """Return all that a monitor needs to continue, JSON-able."""
        return {
            "version": _VERSION,
            "baseline": _fingerprint(self.baseline),
            "budget": self.budget,
            "at_least": self.at_least,
            "at_least_share": self.at_least_share,
            "windows": self._windows,
            "rows": self._rows,
            "alarms": {name: list(one) for name, one in self._alarms.items()},
            "streams": self._streams.state(),
            "sizes": self._sizes.state(),
            "together": [group.directions.state() for group in self._together],
            "accuracy": self._accuracy.state() if self._accuracy else None,
        }

    def update(self, columns: Mapping[str, Any], *, times: ArrayLike | None = None) -> Verdict:
        """Judge the next window of requests.

        Args:
            columns: arrays of one length by name, in the order of the requests; see `Baseline.of`.
            times: of the requests, if the baseline has times, too.

        Raises:
            DriftError: lengths differ, or a column is not an array; or times are needed.
        """
        window = read_window(self.baseline, columns, times)
        self._rows += window.rows
        random = np.random.default_rng([self.baseline.seed, self._windows])
        judgeable, features = self._features(window, random)
        needed = evidence_needed(self.budget, "together", max(len(self._together), 1))
        for group in self._together:
            found = group.update(window, random, int(self._streams.spacing.shared[0]))
            if found is None:
                continue
            features.append(
                self._feature(
                    group.name,
                    "columns together",
                    found.change(),
                    evidence=found.evidence,
                    needed=needed + found.handicap,
                    since=(found.since, 0),
                    because=judgeable.because_dependent(range(len(self._names))),
                )
            )
        self._windows += 1
        because = {feature.name: feature.because for feature in features if feature.because}
        if self._accuracy is not None and (why := self._accuracy.because()):
            because["accuracy"] = why
        judged = int(self._sizes.rows().max(initial=0.0))
        return self._verdict(
            window.rows,
            features,
            (self._rows, judged),
            reasons=reasons_of(because),
            violations=window.violations,
            outliers=window.outliers,
        )

    def add_labels(self, correct: ArrayLike) -> Verdict:
        """Judge the accuracy of predictions whose labels have become known.

        Args:
            correct: bool [rows], whether predictions were correct, in the order of the requests;
                NaN where that is unknown.

        Returns:
            A verdict on the accuracy, with the index of the last window.

        Raises:
            DriftError: the baseline has no accuracy, or these are not booleans.
        """
        accuracy = self._accuracy
        if accuracy is None:
            raise DriftError("the baseline has no accuracy; give it `correct`, too")
        values = read_correct(correct, np.size(correct))
        values = values[~np.isnan(values[:, 0])]
        found = accuracy.add(values, self._windows)
        because, smallest = accuracy.because(), accuracy.smallest()
        feature = self._feature(
            "accuracy",
            "accuracy",
            found.change,
            evidence=found.evidence,
            needed=evidence_needed(self.budget, "accuracy", 1),
            since=(found.since, 0),
            because=because,
            would_have_seen=smallest,
            reported={"accuracy": float(values.mean()) if values.size else math.nan},
        )
        reasons = reasons_of({"accuracy": because}) if because else ()
        rows = accuracy.rows, accuracy.judged
        return self._verdict(len(values), [feature], rows, reasons=reasons)

    def _features(
        self, window: Window, random: np.random.Generator
    ) -> tuple[Judgeable, list[FeatureDrift]]:
        """Add a window to the streams of single columns, and return their features."""
        values = np.zeros((window.rows, len(self._names)))
        present = np.array([name in window.columns for name in self._names], bool)
        start = 0
        for column in self.baseline.columns:
            width = len(self.baseline.encoders[column.name].streams) * column.monitored
            if column.name in window.columns:
                encoded = self.baseline.encoders[column.name].encode(window.columns[column.name])
                values[:, start : start + width] = encoded[:, :width]
            start += width
        changes = self._streams.changes
        before = changes.total
        evidence = self._streams.update(values, random.random(values.shape), present, window.phase)
        starts = changes.starts()
        kept = {*self._streams.candidates, *(since for since, _ in self._alarms.values())}
        counts = changes.total - before
        self._sizes.add(self._windows, window.columns, window.phase, counts, kept)
        smallest = self._sizes.smallest()
        smallest = np.where(self._streams.spacing.unsettled, math.inf, smallest)
        judgeable = Judgeable(
            window,
            self._streams,
            self._rows,
            self._sizes.rows(),
            self.baseline,
        )
        features = []
        for column in self.baseline.columns:
            streams = [at for at, name in enumerate(self._names) if name == column.name]
            if not streams:
                features.append(self._unmonitored(column))
                continue
            most = max(streams, key=evidence.__getitem__)
            since, stream = int(starts[most]), most
            change = self._sizes.change(stream, since)
            if evidence[most] >= self._needed and self._matters(change):
                self._raise(column.name, (since, stream))
            if (raised := self._alarms.get(column.name)) and raised != (since, stream):
                # The size is of the change that raised the alarm.
                since, stream = raised
                change = self._sizes.change(stream, since)
            found = window.columns.get(column.name)
            reported = (
                {} if found is None or not len(found) else self._reported[column.name].of(found)
            )
            size = float(smallest[streams].max())
            features.append(
                self._feature(
                    column.name,
                    column.kind,
                    change,
                    evidence=float(evidence[most]),
                    needed=self._needed,
                    since=(since, stream),
                    because=judgeable.because(column, streams, size),
                    would_have_seen=size,
                    in_deviations=bool(self._sizes.in_deviations[streams[0]]),
                    reported=reported,
                )
            )
        return judgeable, features

    def _unmonitored(self, column: Column) -> FeatureDrift:
        because = "rows of the baseline depend on each other at any distance"
        return self._feature(
            column.name,
            column.kind,
            _NOTHING,
            evidence=0.0,
            needed=self._needed,
            since=(0, 0),
            because=because,
        )

    def _raise(self, name: str, since: tuple[int, int]) -> None:
        self._new |= name not in self._alarms
        self._alarms.setdefault(name, since)

    def _feature(
        self,
        name: str,
        test: str,
        change: Change,
        *,
        evidence: float,
        needed: float,
        since: tuple[int, int],
        because: str = "",
        would_have_seen: float = math.inf,
        in_deviations: bool = False,
        reported: dict[str, float] | None = None,
    ) -> FeatureDrift:
        small = evidence >= needed and not self._matters(change)
        if evidence >= needed and not small:
            self._raise(name, since)
        alarm = name in self._alarms
        feature = FeatureDrift(
            name=name,
            test=test,
            answer="drift" if alarm else "cannot tell" if because else "no drift seen",
            because="" if alarm else because,
            would_have_seen=None if math.isinf(would_have_seen) else would_have_seen,
            seen_unit="standard deviations" if in_deviations else "share of rows",
            evidence=evidence / _NATS_PER_DECADE,
            needed=needed / _NATS_PER_DECADE,
            alarm=alarm,
            since=self._alarms[name][0] if alarm else None,
            reported=reported or {},
            **{key: value for key, value in vars(change).items() if key != "errors"},
        )
        if alarm:
            return feature
        if small:
            return replace(feature, text=f"{feature.text}: less than what is worth an alarm")
        return replace(feature, text=unchanged(feature))

    def _matters(self, change: Change) -> bool:
        """Return whether a change is large enough for an alarm."""
        size = abs(change.how_far)
        if change.unit == "times":
            size = max(size, 1 / max(size, 1e-9)) - 1
        in_deviations = change.unit in ("standard deviations", "times")
        return size >= (self.at_least if in_deviations else self.at_least_share)

    def _verdict(
        self,
        rows: int,
        features: list[FeatureDrift],
        total: tuple[int, int],
        *,
        reasons: tuple[str, ...],
        violations: tuple[str, ...] = (),
        outliers: tuple[str, ...] = (),
    ) -> Verdict:
        features.sort(key=lambda feature: (not feature.alarm, feature.needed - feature.evidence))
        new, self._new = self._new, False
        # Of the clearest one, or of those that this verdict lacks.
        since = features[0].since if features and features[0].alarm else None
        if since is None:
            since = min((one for one, _ in self._alarms.values()), default=None)
        answer = answer_of(features, bool(self._alarms))
        return Verdict(
            window=max(self._windows - 1, 0),
            rows=rows,
            total_rows=total[0],
            judged_rows=total[1],
            answer=answer,
            reasons=reasons,
            alarm=bool(self._alarms),
            new=new,
            since=since,
            features=tuple(features),
            violations=violations,
            outliers=outliers,
            limits=limits_of(self.baseline, self._streams.spacing),
            summary=summary_of(
                answer,
                features,
                sorted(self._alarms),
                since,
                reasons=reasons,
                violations=violations,
                rows=total,
            ),
        )


def _fingerprint(baseline: Baseline) -> str:
    """Return a digest of what a baseline compares with."""
    digest = hashlib.sha256()
    digest.update(repr([(column.name, stream) for column, stream in baseline.streams]).encode())
    digest.update(repr(baseline.cycle).encode())
    for array in (baseline.edges.values, baseline.edges.ties, baseline.edges.gaps):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def evidence_needed(
    budget: float, part: Literal["columns", "together", "accuracy"], among: int
) -> float:
    """Return the evidence that raises an alarm, in nats.

    By Ville's inequality, an e-process reaches it with a probability of the budget's share at most,
    and the sum of all shares is the budget (Bonferroni, valid for dependent streams).

    Args:
        budget: probability of a false alarm in the life of a monitor.
        part: of what is monitored.
        among: number of e-processes in this part.
    """
    return -math.log(budget * _SHARES[part] / among)
