"""The checks by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection

import torch

from vinedresser.capture.torch_.guard.random_states import current_states, set_states
from vinedresser.preflight.checks.base import Evidence
from vinedresser.preflight.checks.batches import batches, scales
from vinedresser.preflight.checks.cost import cost, finite
from vinedresser.preflight.checks.first_loss import first_loss, loss_arguments
from vinedresser.preflight.checks.gradients import clearing, gradients
from vinedresser.preflight.checks.modes import modes
from vinedresser.preflight.checks.overfit import learning_rate, overfit
from vinedresser.preflight.checks.samples import other_samples, own_input
from vinedresser.preflight.checks.units import units
from vinedresser.preflight.names import CHECKS
from vinedresser.preflight.trials import FAILURES, NotRepeatable
from vinedresser.preflight.verdict import Verdict, unchecked

__all__ = ["run_checks"]

_Check = Callable[[Evidence], tuple[str, str]]
_BY_NAME: dict[str, _Check] = dict(
    zip(
        CHECKS,
        (
            *(finite, gradients, clearing, loss_arguments, first_loss, batches, modes),
            *(units, own_input, other_samples, overfit, learning_rate, scales, cost),
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
    try:
        return check(evidence)
    except NotRepeatable as why:
        return unchecked(str(why))
    except FAILURES as error:
        return unchecked(f"{type(error).__name__}: {error}".splitlines()[0])
