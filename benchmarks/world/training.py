"""Training of a case in a process of its own, captured into a run."""

from __future__ import annotations

import logging
import math
import random
import shutil
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.world.cases import Case
from benchmarks.world.stored import RUN, StoredCase, note_case
from corpus.draw import Draw
from corpus.family import Ending, Family
from corpus.loader import PARTS, load
from corpus.watching import AttachedWatch, HookWatch, Watch
from vinedresser.rules.base import capture_for
from vinedresser.rules.presets import preset_table
from vinedresser.rules.registry import rules_from_table

__all__ = ["train_case", "trained"]

_EVERY: dict[str, Family] = {name: family for part in PARTS for name, family in load(part).items()}
# Errors with which a faulty training can end.
_CRASHES = (RuntimeError, ValueError, ArithmeticError, IndexError)


def train_case(case: Case, keep: Path, *, captured: bool = True) -> StoredCase:
    """Train a case in a new directory below ``keep``, and note its ending there.

    Captures as an unchanged script, which changes this process: call it in one of its own.

    Args:
        case: the training.
        keep: directory of the trainings.
        captured: whether to capture it into a run.
    """
    place = keep / case.id
    # Of a benchmark that was interrupted.
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    warnings.simplefilter("ignore")
    logging.getLogger("vinedresser").setLevel(logging.ERROR)
    choose = random.Random(f"{case.pair} capture")
    hooked, told, reports = (choose.random() < share for share in (1 / 3, 1 / 2, 2 / 3))
    watch = Watch()
    if captured:
        needs = capture_for(rules_from_table(preset_table("default")))
        if hooked:
            watch = HookWatch(place / RUN, needs, told=told, reports=reports)
        else:
            framework = _EVERY[case.family].framework
            watch = AttachedWatch(place / RUN, needs, framework, told=told)
    begun = time.perf_counter()
    ending = trained(case, watch)
    seconds = time.perf_counter() - begun
    stored = StoredCase(case, place, ending, hooked, seconds, watch.sizes)
    note_case(stored)
    return stored


def trained(case: Case, watch: Watch) -> Ending:
    """Train a case on one thread, and return its ending."""
    torch.set_num_threads(1)
    # A repetition has the choices and the data of the first, but other weights and batches.
    torch.manual_seed(case.random_seed + case.repeat)
    np.random.seed((case.random_seed + case.repeat) % 2**32)
    draw = Draw(case.random_seed, case.faults, watch, faulty=case.faulty)
    try:
        ending = _EVERY[case.family].train(draw)
    except _CRASHES as error:
        watch.close(error)
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        ending = Ending(math.nan, math.nan, crash=said)
    else:
        watch.close(None)
    return replace(ending, epoch=math.ceil(draw.epoch / max(draw.accumulated, 1)))
