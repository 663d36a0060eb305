"""Families that nobody looks at while working on rules; `--sealed` runs them.

They were written without a look at the rules, and more than half of their faults are those that
the literature finds most often. They have not been judged.
"""

from __future__ import annotations

from benchmarks.world.family import Family
from benchmarks.world.sealed.decisions import fortunes
from benchmarks.world.sealed.frameworks import (
    boosted_loads,
    boosted_payments,
    keras_digits,
    keras_prices,
    lightning_encoders,
)
from benchmarks.world.sealed.generative import flow_matching, hidden_patches
from benchmarks.world.sealed.images import drives, grains, patches, turned, xrays
from benchmarks.world.sealed.measured import gaps, genres, pedestrians, sleep, stocks
from benchmarks.world.sealed.people import purchases
from benchmarks.world.sealed.science import affinities, phases, scans
from benchmarks.world.sealed.tables import airfoils, irises, progressions, survivors
from benchmarks.world.sealed.texts import complaints, dates, instructions, paraphrases, spam

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "affinities": affinities.FAMILY,
    "airfoils": airfoils.FAMILY,
    "boosted_loads": boosted_loads.FAMILY,
    "boosted_payments": boosted_payments.FAMILY,
    "complaints": complaints.FAMILY,
    "dates": dates.FAMILY,
    "drives": drives.FAMILY,
    "flow_matching": flow_matching.FAMILY,
    "fortunes": fortunes.FAMILY,
    "gaps": gaps.FAMILY,
    "genres": genres.FAMILY,
    "grains": grains.FAMILY,
    "hidden_patches": hidden_patches.FAMILY,
    "instructions": instructions.FAMILY,
    "irises": irises.FAMILY,
    "keras_digits": keras_digits.FAMILY,
    "keras_prices": keras_prices.FAMILY,
    "lightning_encoders": lightning_encoders.FAMILY,
    "paraphrases": paraphrases.FAMILY,
    "patches": patches.FAMILY,
    "pedestrians": pedestrians.FAMILY,
    "phases": phases.FAMILY,
    "progressions": progressions.FAMILY,
    "purchases": purchases.FAMILY,
    "scans": scans.FAMILY,
    "sleep": sleep.FAMILY,
    "spam": spam.FAMILY,
    "stocks": stocks.FAMILY,
    "survivors": survivors.FAMILY,
    "turned": turned.FAMILY,
    "xrays": xrays.FAMILY,
}
