"""The checks by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection

import torch

from vinedresser.frameworks.torch_.random_states import current_states, set_states
from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.checks.batches import batches, scales
from vinedresser.preflight.checks.momentum import momentum
from vinedresser.preflight.checks.overfit import learning_rate, overfit
from vinedresser.preflight.checks.positions import future
from vinedresser.preflight.checks.samples import other_samples, own_input
from vinedresser.preflight.checks.steps import cost, updates
from vinedresser.preflight.names import PROBES
from vinedresser.preflight.trials import FAILURES, NotRepeatable
from vinedresser.preflight.verdict import Verdict, unchecked

_Check = Callable[[Evidence], tuple[str, str]]
_BY_NAME: dict[str, _Check] = dict(
    zip(
        PROBES,
        (
            *(updates, batches, momentum, own_input, other_samples, future),
            *(overfit, learning_rate, scales, cost),
        ),
        strict=True,
    )
)


def run_checks(evidence: Evidence, skip: Collection[str]) -> list[Verdict]:
    """Return the verdict of each check; random states are the same afterwards.

    Args:
        evidence: what the checks read.
        skip: names of checks that are left out.
    """
    states = current_states()
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")
            return [
                Verdict(name, *_tried(check, evidence))
                for name, check in _BY_NAME.items()
                if name not in skip
            ]
    finally:
        set_states(states)


def _tried(check: _Check, evidence: Evidence) -> tuple[str, str]:
    if evidence.seen.failed:
        return unchecked(evidence.seen.failed.splitlines()[0])
    try:
        return check(evidence)
    except NotRepeatable as why:
        return unchecked(str(why))
    except FAILURES as error:
        return unchecked(f"{type(error).__name__}: {error}".splitlines()[0])
