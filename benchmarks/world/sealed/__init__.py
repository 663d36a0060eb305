"""Families that nobody looks at while working on rules; `--sealed` runs them.

They were written without a look at the rules, and more than half of their faults are those that
the literature finds most often. They have not been judged.
"""

from __future__ import annotations

from benchmarks.world.family import Family
from benchmarks.world.sealed.frameworks import (
    boosted_tumours,
    boosted_visits,
    keras_energy,
    keras_pets,
    lightning_roads,
)
from benchmarks.world.sealed.generative import made, sketches
from benchmarks.world.sealed.images import (
    changes,
    gauges,
    mixer,
    moles,
    nodules,
    visual_questions,
)
from benchmarks.world.sealed.measured import anomalies, arrivals, brainwaves, chords, sales
from benchmarks.world.sealed.people import books, exercises, offers, reward_models
from benchmarks.world.sealed.science import cells, folds
from benchmarks.world.sealed.tables import outcomes, readmissions, turbines, wines
from benchmarks.world.sealed.texts import comments, entailments, parses

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "anomalies": anomalies.FAMILY,
    "arrivals": arrivals.FAMILY,
    "books": books.FAMILY,
    "boosted_tumours": boosted_tumours.FAMILY,
    "boosted_visits": boosted_visits.FAMILY,
    "brainwaves": brainwaves.FAMILY,
    "cells": cells.FAMILY,
    "changes": changes.FAMILY,
    "chords": chords.FAMILY,
    "comments": comments.FAMILY,
    "entailments": entailments.FAMILY,
    "exercises": exercises.FAMILY,
    "folds": folds.FAMILY,
    "gauges": gauges.FAMILY,
    "keras_energy": keras_energy.FAMILY,
    "keras_pets": keras_pets.FAMILY,
    "lightning_roads": lightning_roads.FAMILY,
    "made": made.FAMILY,
    "mixer": mixer.FAMILY,
    "moles": moles.FAMILY,
    "nodules": nodules.FAMILY,
    "offers": offers.FAMILY,
    "outcomes": outcomes.FAMILY,
    "parses": parses.FAMILY,
    "readmissions": readmissions.FAMILY,
    "reward_models": reward_models.FAMILY,
    "sales": sales.FAMILY,
    "sketches": sketches.FAMILY,
    "turbines": turbines.FAMILY,
    "visual_questions": visual_questions.FAMILY,
    "wines": wines.FAMILY,
}
