"""Drift of a served model's requests, with a budget of false alarms for the monitor's life."""

from __future__ import annotations

from vinedresser.errors import DriftError
from vinedresser.explain.drift.baseline import Baseline
from vinedresser.explain.drift.monitor import DriftMonitor
from vinedresser.explain.drift.verdict import FeatureDrift, Verdict

__all__ = ["Baseline", "DriftError", "DriftMonitor", "FeatureDrift", "Verdict"]
