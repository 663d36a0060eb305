"""What each configuration does when nothing stops it, and when the rules would have stopped it."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import optuna

from benchmarks.sweep.spaces import SPACES
from vinedresser.sweeps.dimension import Choice
from vinedresser.sweeps.space import Space

__all__ = ["Curve", "configurations", "curves"]


@dataclass(frozen=True)
class Curve:
    """A training of all epochs.

    Attributes:
        parameters: the configuration.
        accuracies: of the rows held out, after each epoch.
        seconds: that it took, capture included.
        stopped: epochs, and parts of one, after which the first rule would have stopped it; None:
            none would.
        rule: that would have.
        seen: what it would have said.
        suspected: at the end of each epoch the first rule that suspects anything; "" for none.
    """

    parameters: dict[str, Choice]
    accuracies: list[float]
    seconds: float
    stopped: float | None = None
    rule: str = ""
    seen: str = ""
    suspected: list[str] = field(default_factory=list)


def configurations(space: str, seed: int, trials: int) -> list[dict[str, Choice]]:
    """Return configurations drawn at random."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.RandomSampler(seed=seed)
    study = optuna.create_study(sampler=sampler)
    drawn = Space.parse(SPACES[space], space)
    return [drawn.suggest(study.ask()) for _ in range(trials)]


def curves(space: str, seed: int, trials: int, folder: Path, max_concurrent: int) -> list[Curve]:
    """Return the trainings of a space's configurations; those that the folder has are not repeated.

    Args:
        space: its name.
        seed: of the configurations and the trainings.
        trials: how many.
        folder: keeps them, as ``<space>-<seed>.jsonl``.
        max_concurrent: processes.
    """
    wanted = configurations(space, seed, trials)
    path = folder / f"{space}-{seed}.jsonl"
    known = [Curve(**json.loads(line)) for line in _lines(path)]
    done = [
        one for one, parameters in zip(known, wanted, strict=False) if one.parameters == parameters
    ]
    if len(done) < len(known[:trials]):
        raise SystemExit(f"{path}: holds other configurations than these; remove it")
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for curve in _train(wanted[len(done) :], seed, max_concurrent):
            file.write(json.dumps(asdict(curve)) + "\n")
            file.flush()
            done.append(curve)
    return done


def _train(wanted: Sequence[dict[str, Choice]], seed: int, max_concurrent: int) -> Iterator[Curve]:
    """Train in processes of their own, in the order of the configurations."""
    if not wanted:
        return
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.sweep.network"])
    from benchmarks.sweep.network import train_curve

    with ProcessPoolExecutor(max_concurrent, mp_context=context) as pool:
        yield from pool.map(train_curve, wanted, [seed] * len(wanted))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
