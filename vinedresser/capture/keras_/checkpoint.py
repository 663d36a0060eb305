"""Checkpoints of stopped Keras trainings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

__all__ = ["save_checkpoint"]


def save_checkpoint(model: Any, directory: Path, step: int, name: str | None = None) -> Path:
    """Save a model's weights atomically as ``step-<step>.weights.h5`` and return the path.

    ``model.load_weights(path)`` loads them, including the optimizer's state.

    Args:
        model: the model.
        directory: target directory; created if missing.
        step: number of completed optimizer steps.
        name: name of the model, for ``step-<step>-<name>.weights.h5``; None for no name.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"step-{step}-{name}" if name else f"step-{step}"
    path = directory / f"{stem}.weights.h5"
    temporary = directory / f".tmp-{os.getpid()}-{path.name}"
    model.save_weights(temporary, overwrite=True)
    os.replace(temporary, path)
    return path
