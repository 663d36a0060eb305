"""How often the faults that findings name are those of the training, as measured."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from importlib.resources import files

from vinedresser.store.finding import Finding


def calibrated(finding: Finding) -> Finding:
    """Return a finding whose confidence is that of its fault, not of its symptom alone.

    A rule states how sure it is of what it has seen. The same may have other causes: of trainings
    whose gravest root cause was a fault, some have another one. The shares of those that have this
    fault were measured on trainings of many kinds (`benchmarks.world.calibration`); the confidence
    is multiplied by that share. Faults that were never measured keep theirs.

    Args:
        finding: finding of a built-in rule.
    """
    share = _shares().get(finding.fault)
    return finding if share is None else replace(finding, confidence=share * finding.confidence)


@cache
def _shares() -> dict[str, float]:
    """Return the share of right root causes by fault."""
    text = (
        files("vinedresser.rules.causes").joinpath("reliability.json").read_text(encoding="utf-8")
    )
    shares: dict[str, float] = json.loads(text)
    return shares
