"""Drift of a served model's requests, with a budget of false alarms for the monitor's life."""

from __future__ import annotations

from vinedresser.drift.baseline import Baseline
from vinedresser.drift.monitor import DriftMonitor
from vinedresser.drift.verdict import FeatureDrift, Verdict
from vinedresser.errors import DriftError

__all__ = ["Baseline", "DriftError", "DriftMonitor", "FeatureDrift", "Verdict"]
