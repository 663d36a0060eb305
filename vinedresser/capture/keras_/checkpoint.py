"""Saving a Keras model's weights when its training is stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

__all__ = ["save_checkpoint"]


def save_checkpoint(model: Any, directory: Path, step: int, name: str | None = None) -> Path:
    """Save a model's weights as ``step-<step>.weights.h5``, whole or not at all.

    ``model.load_weights(path)`` brings them back; the optimizer's state is in there too.

    Args:
        model: the model.
        directory: where to; made if missing.
        step: optimizer steps done.
        name: of a model that is watched under a name: ``step-<step>-<name>.weights.h5``.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"step-{step}-{name}" if name else f"step-{step}"
    path = directory / f"{stem}.weights.h5"
    temporary = directory / f".tmp-{os.getpid()}-{path.name}"
    model.save_weights(temporary, overwrite=True)
    os.replace(temporary, path)
    return path
