"""Windows of requests against a baseline, with a budget of false alarms for the monitor's life."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from vinedresser.drift.baseline import Baseline, read_correct
from vinedresser.drift.budget import evidence_needed
from vinedresser.drift.evidence.dependence import TOO_FAR
from vinedresser.drift.evidence.streams import Streams
from vinedresser.drift.together import groups_of
from vinedresser.drift.verdict import FeatureDrift, Verdict, summary_of
from vinedresser.drift.windows import Window, read_window
from vinedresser.drift.wording import Change, Reference
from vinedresser.errors import DriftError

__all__ = ["DriftMonitor"]

_VERSION = 1
_NATS_PER_DECADE = math.log(10)


class DriftMonitor:
    """Compares windows of requests with a baseline.

    As long as the requests have not drifted, the probability that any window of the monitor's life
    raises an alarm is at most the budget, however many windows there are. Memory is constant.

    Args:
        baseline: what to compare with.
        budget: probability of a false alarm in the monitor's life, between 0 and 1.

    Raises:
        DriftError: the budget is invalid, or the baseline has nothing to monitor.
    """

    def __init__(self, baseline: Baseline, *, budget: float = 0.01) -> None:
        if not 0 < budget < 1:
            raise DriftError(f"budget={budget!r}: expected a probability, such as 0.01")
        self.baseline, self.budget = baseline, budget
        distances = np.array([column.distance for column, _ in baseline.streams], np.int64)
        self._streams = Streams(baseline.edges, distances, len(distances))
        self._together = groups_of(baseline)
        self._references = {
            one.name: Reference(one, baseline.sample[one.name]) for one in baseline.columns
        }
        self._accuracy = None
        if baseline.correct is not None:
            self._accuracy = Streams(baseline.correct, np.ones(1, np.int64), 1)
        self._windows = self._labels = 0
        # Features with an alarm, and the windows at which their drift probably began.
        self._alarms: dict[str, int] = {}
        self._new = False

    @classmethod
    def resumed(cls, baseline: Baseline, state: Mapping[str, Any]) -> DriftMonitor:
        """Return a monitor that continues from a state, with the same verdicts.

        Args:
            baseline: the baseline of the monitor whose state it is.
            state: see `state`.

        Raises:
            DriftError: it is not a state of a monitor of this baseline.
        """
        try:
            if state["version"] != _VERSION or state["baseline"] != _fingerprint(baseline):
                raise DriftError("the state is of a monitor of another baseline or version")
            monitor = cls(baseline, budget=float(state["budget"]))
            monitor._windows, monitor._labels = int(state["windows"]), int(state["labels"])
            monitor._alarms = {str(name): int(at) for name, at in state["alarms"].items()}
            monitor._streams.resume(state["streams"])
            for group, saved in zip(monitor._together, state["together"], strict=True):
                group.directions.resume(saved)
            if monitor._accuracy is not None:
                monitor._accuracy.resume(state["accuracy"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise DriftError(f"not a state of a drift monitor: {error}") from error
        return monitor

    def state(self) -> dict[str, Any]:
        """Return all that a monitor needs to continue, JSON-able."""
        return {
            "version": _VERSION,
            "baseline": _fingerprint(self.baseline),
            "budget": self.budget,
            "windows": self._windows,
            "labels": self._labels,
            "alarms": dict(self._alarms),
            "streams": self._streams.state(),
            "together": [group.directions.state() for group in self._together],
            "accuracy": self._accuracy.state() if self._accuracy else None,
        }

    def update(self, columns: Mapping[str, Any]) -> Verdict:
        """Judge the next window of requests.

        Args:
            columns: arrays of one length by name, in the order of the requests; see `Baseline.of`.

        Raises:
            DriftError: lengths differ, or a column is not an array.
        """
        window = read_window(self.baseline, columns)
        random = np.random.default_rng([self.baseline.seed, self._windows])
        features = self._features(window, random)
        spacing = self._streams.spacing
        needed = evidence_needed(self.budget, "together", max(len(self._together), 1))
        for group in self._together:
            found = group.update(window, random, int(spacing.shared[0]))
            if found is None:
                continue
            features.append(
                self._feature(
                    group.name,
                    "columns together",
                    group.change(found, window),
                    evidence=found.evidence,
                    needed=needed + found.handicap,
                    since=found.since,
                )
            )
        self._windows += 1
        return self._verdict(window.rows, features, window.violations, window.outliers)

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
        if self._accuracy is None:
            raise DriftError("the baseline has no accuracy; give it `correct`, too")
        values = read_correct(correct, np.size(correct))
        values = values[~np.isnan(values[:, 0])]
        random = np.random.default_rng([self.baseline.seed, self._labels, 1])
        evidence = float(self._accuracy.update(values, random.random(values.shape))[0])
        self._labels += 1
        before, after = (
            self.baseline.accuracy,
            float(values.mean()) if values.size else math.nan,
        )
        text = f"accuracy {after:.1%}, {before:.1%} in the baseline"
        change = Change("accuracy", after - before, "share of rows", before, after, text)
        # Only a fall is a fault.
        fallen = evidence if after < before else 0.0
        feature = self._feature(
            "accuracy",
            "accuracy",
            change,
            evidence=fallen,
            needed=evidence_needed(self.budget, "accuracy", 1),
            since=max(self._windows - 1, 0),
        )
        return self._verdict(len(values), [feature])

    def _features(self, window: Window, random: np.random.Generator) -> list[FeatureDrift]:
        """Add a window to the streams of single columns, and return their features."""
        names = [column.name for column, _ in self.baseline.streams]
        values = np.zeros((window.rows, len(names)))
        present = np.array([name in window.columns for name in names], bool)
        start = 0
        for column in self.baseline.columns:
            width = len(self.baseline.encoders[column.name].streams) * column.monitored
            if column.name in window.columns:
                encoded = self.baseline.encoders[column.name].encode(window.columns[column.name])
                values[:, start : start + width] = encoded[:, :width]
            start += width
        evidence = self._streams.update(values, random.random(values.shape), present)
        starts = self._streams.changes.starts()
        needed = evidence_needed(self.budget, "columns", max(len(names), 1))
        features = []
        for column in self.baseline.columns:
            streams = [at for at, name in enumerate(names) if name == column.name]
            if not streams or not present[streams[0]] or not window.rows:
                continue
            most = max(streams, key=evidence.__getitem__)
            change = self._references[column.name].change(window.columns[column.name])
            features.append(
                self._feature(
                    column.name,
                    column.kind,
                    change,
                    evidence=float(evidence[most]),
                    needed=needed,
                    since=int(starts[most]),
                )
            )
        return features

    def _feature(
        self, name: str, test: str, change: Change, *, evidence: float, needed: float, since: int
    ) -> FeatureDrift:
        if evidence >= needed:
            self._new |= name not in self._alarms
            self._alarms[name] = since
        return FeatureDrift(
            name=name,
            test=test,
            evidence=evidence / _NATS_PER_DECADE,
            needed=needed / _NATS_PER_DECADE,
            alarm=name in self._alarms,
            since=self._alarms.get(name),
            **vars(change),
        )

    def _verdict(
        self,
        rows: int,
        features: list[FeatureDrift],
        violations: tuple[str, ...] = (),
        outliers: tuple[str, ...] = (),
    ) -> Verdict:
        features.sort(key=lambda one: (not one.alarm, one.needed - one.evidence))
        new, self._new = self._new, False
        # Of the clearest one, or of those that this window lacks.
        since = features[0].since if features and features[0].alarm else None
        if since is None:
            since = min(self._alarms.values(), default=None)
        return Verdict(
            window=max(self._windows - 1, 0),
            rows=rows,
            alarm=bool(self._alarms),
            new=new,
            since=since,
            features=tuple(features),
            violations=violations,
            outliers=outliers,
            limits=self._limits(),
            summary=summary_of(
                [one.text for one in features if one.alarm],
                sorted(self._alarms),
                since,
                violations,
            ),
        )

    def _limits(self) -> tuple[str, ...]:
        """Return why some drift cannot be found."""
        limits = [
            f"{one.name}: not monitored, since rows of the baseline depend on each other at any "
            "distance"
            for one in self.baseline.columns
            if not one.monitored
        ]
        spacing = self._streams.spacing
        if spacing.waiting:
            return (*limits, "too few requests so far to see whether they depend on each other")
        far = sorted(
            {
                column.name
                for (column, _), distance in zip(
                    self.baseline.streams, spacing.distances, strict=True
                )
                if distance >= TOO_FAR
            }
        )
        if far:
            limits.append(
                f"{', '.join(far)}: no drift can be found within the budget, since successive "
                "requests depend on each other over too many rows; use windows of more rows"
            )
        elif spacing.shared[0] > 1:
            limits.append(
                f"successive requests depend on each other: only one in {spacing.shared[0]} counts"
            )
        return tuple(limits)


def _fingerprint(baseline: Baseline) -> str:
    """Return a digest of what a baseline compares with."""
    digest = hashlib.sha256()
    digest.update(repr([(column.name, stream) for column, stream in baseline.streams]).encode())
    for array in (baseline.edges.values, baseline.edges.ties, baseline.edges.gaps):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
