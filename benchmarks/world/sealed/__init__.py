"""Families that nobody looks at while working on rules; `--sealed` runs them.

They were written without a look at the rules, and more than half of their faults are those that
the literature finds most often. They have not been judged.
"""

from __future__ import annotations

from benchmarks.world.family import Family
from benchmarks.world.sealed.decisions import boards, jokes, values
from benchmarks.world.sealed.frameworks import (
    boosted_flights,
    keras_clothes,
    keras_concrete,
    lightning_signs,
)
from benchmarks.world.sealed.generative import conditional_vae
from benchmarks.world.sealed.images import captions, depths, house_numbers, wardrobe
from benchmarks.world.sealed.measured import gestures, glucose, spectra, traffic
from benchmarks.world.sealed.science import links, potentials
from benchmarks.world.sealed.tables import biopsies, cars, loans
from benchmarks.world.sealed.texts import answers, languages, sentiments

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "answers": answers.FAMILY,
    "biopsies": biopsies.FAMILY,
    "boards": boards.FAMILY,
    "boosted_flights": boosted_flights.FAMILY,
    "captions": captions.FAMILY,
    "cars": cars.FAMILY,
    "conditional_vae": conditional_vae.FAMILY,
    "depths": depths.FAMILY,
    "gestures": gestures.FAMILY,
    "glucose": glucose.FAMILY,
    "house_numbers": house_numbers.FAMILY,
    "jokes": jokes.FAMILY,
    "keras_clothes": keras_clothes.FAMILY,
    "keras_concrete": keras_concrete.FAMILY,
    "languages": languages.FAMILY,
    "lightning_signs": lightning_signs.FAMILY,
    "links": links.FAMILY,
    "loans": loans.FAMILY,
    "potentials": potentials.FAMILY,
    "sentiments": sentiments.FAMILY,
    "spectra": spectra.FAMILY,
    "traffic": traffic.FAMILY,
    "values": values.FAMILY,
    "wardrobe": wardrobe.FAMILY,
}
