"""View of a pre-flight check."""

from __future__ import annotations

from vinedresser.cli.views.console import say
from vinedresser.preflight.launching import Preflight
from vinedresser.preflight.verdict import SUSPICIOUS

_LINES = 15


def print_preflight(found: Preflight) -> None:
    """Print the verdicts, and the last output of a script that failed or trained nothing."""
    width = max((len(verdict.check) for verdict in found.verdicts), default=0)
    for verdict in found.verdicts:
        say(f"{verdict.check:{width}}   {verdict.state}: {verdict.evidence}")
    bad = sum(verdict.state == SUSPICIOUS for verdict in found.verdicts)
    if found.verdicts:
        say(f"{bad} suspicious   {found.steps} steps   {found.seconds:.0f} s of CPU")
    elif found.code is None:
        say("no training of PyTorch or Keras was seen in the time; --timeout allows more")
    else:
        others = "those of XGBoost and scikit-learn are judged by `vinedresser run`"
        say(f"no training of PyTorch or Keras was seen; {others}")
    if found.code or not found.verdicts:
        ended = f"the script ended with exit code {found.code}; " if found.code else ""
        if ended or found.output:
            say(f"{ended}its last output:")
        for line in found.output.splitlines()[-_LINES:]:
            say(f"  {line}")
