"""Checkpoints of stopped XGBoost trainings."""

from __future__ import annotations

import os
from pathlib import Path

from xgboost import Booster

__all__ = ["save_checkpoint"]


def save_checkpoint(booster: Booster, directory: Path, name: str) -> Path:
    """Save a booster atomically as ``<name>.ubj`` and return the path.

    ``xgboost.Booster(model_file=path)`` loads it; ``xgboost.train(xgb_model=path)`` continues from
    it.

    Args:
        booster: the booster.
        directory: target directory; created if missing.
        name: file name without the extension.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.ubj"
    temporary = directory / f".tmp-{os.getpid()}-{path.name}"
    temporary.write_bytes(booster.save_raw("ubj"))
    os.replace(temporary, path)
    return path
