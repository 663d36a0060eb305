"""Recorded trainings of configurations, without early termination."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

import optuna

from benchmarks.sweep.curve import Curve
from benchmarks.sweep.network import train_curve
from benchmarks.sweep.spaces import SPACES
from vinedresser.sweeps.dimension import Choice
from vinedresser.sweeps.space import Space

__all__ = ["configurations", "curves"]


def configurations(space: str, seed: int, trials: int) -> list[dict[str, Choice]]:
    """Return random configurations."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.RandomSampler(seed=seed)
    study = optuna.create_study(sampler=sampler)
    drawn = Space.parse(SPACES[space], space)
    return [drawn.suggest(study.ask()) for _ in range(trials)]


def curves(space: str, seed: int, trials: int, folder: Path, max_concurrent: int) -> list[Curve]:
    """Return the trainings of a space's configurations, reusing those in the folder.

    Args:
        space: name of the search space.
        seed: seed of the configurations and the trainings.
        trials: number of trials.
        folder: folder of the recorded trainings, ``<space>-<seed>.jsonl``.
        max_concurrent: number of processes.

    Raises:
        SystemExit: The folder contains trainings of other configurations.
    """
    wanted = configurations(space, seed, trials)
    path = folder / f"{space}-{seed}.jsonl"
    known = [Curve(**json.loads(line)) for line in _lines(path)]
    done = [
        one for one, parameters in zip(known, wanted, strict=False) if one.parameters == parameters
    ]
    if len(done) < len(known[:trials]):
        raise SystemExit(f"{path}: contains other configurations; remove it")
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for curve in _train(wanted[len(done) :], seed, max_concurrent):
            file.write(json.dumps(asdict(curve)) + "\n")
            file.flush()
            done.append(curve)
    return done


def _train(wanted: Sequence[dict[str, Choice]], seed: int, max_concurrent: int) -> Iterator[Curve]:
    """Train in separate processes, in the order of the configurations."""
    if not wanted:
        return
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.sweep.network"])
    with ProcessPoolExecutor(max_concurrent, mp_context=context) as pool:
        yield from pool.map(train_curve, wanted, [seed] * len(wanted))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
