"""Saving a booster when its training is stopped."""

from __future__ import annotations

import os
from pathlib import Path

from xgboost import Booster

__all__ = ["save_checkpoint"]


def save_checkpoint(booster: Booster, directory: Path, name: str) -> Path:
    """Save a booster as ``<name>.ubj``, whole or not at all.

    ``xgboost.Booster(model_file=path)`` brings it back, and ``xgboost.train(xgb_model=path)`` goes
    on from there.

    Args:
        booster: as it is.
        directory: where to; made if missing.
        name: without the ending.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.ubj"
    temporary = directory / f".tmp-{os.getpid()}-{path.name}"
    temporary.write_bytes(booster.save_raw("ubj"))
    os.replace(temporary, path)
    return path
