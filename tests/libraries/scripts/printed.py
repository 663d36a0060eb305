"""What a script prints at its end, as one line of JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from torch import nn

__all__ = ["printed"]


def printed(model: nn.Module, losses: Sequence[float], saved: str = "") -> None:
    """Print the losses, and digests of the weights and of a saved file.

    Args:
        model: the trained model.
        losses: its losses.
        saved: path of what was saved; "" if its bytes differ from time to time.
    """
    weights = hashlib.sha256()
    for one in model.state_dict().values():
        weights.update(one.detach().cpu().numpy().tobytes())
    file = hashlib.sha256(Path(saved).read_bytes()).hexdigest() if saved else ""
    found = {"losses": [*losses], "weights": weights.hexdigest(), "file": file}
    sys.stdout.write(json.dumps(found) + "\n")
