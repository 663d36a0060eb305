"""Families that nobody looks at while working on rules; `--sealed` runs them.

They were written without a look at the rules, and more than half of their faults are those that
the literature finds most often. They have been judged once; the next measurement needs new ones.
"""

from __future__ import annotations

from benchmarks.world.family import Family
from benchmarks.world.sealed.choices import adverts, films, playlists
from benchmarks.world.sealed.frameworks import (
    boosted_crops,
    keras_mushrooms,
    keras_tickets,
    lightning_bikes,
)
from benchmarks.world.sealed.images import ages, fields, leaves, plankton
from benchmarks.world.sealed.series import deliveries, electricity, heartbeats, noises, weather
from benchmarks.world.sealed.tables import buildings, churn, housing, intrusions
from benchmarks.world.sealed.texts import entities, headlines

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "adverts": adverts.FAMILY,
    "ages": ages.FAMILY,
    "boosted_crops": boosted_crops.FAMILY,
    "buildings": buildings.FAMILY,
    "churn": churn.FAMILY,
    "deliveries": deliveries.FAMILY,
    "electricity": electricity.FAMILY,
    "entities": entities.FAMILY,
    "fields": fields.FAMILY,
    "films": films.FAMILY,
    "headlines": headlines.FAMILY,
    "heartbeats": heartbeats.FAMILY,
    "housing": housing.FAMILY,
    "intrusions": intrusions.FAMILY,
    "keras_mushrooms": keras_mushrooms.FAMILY,
    "keras_tickets": keras_tickets.FAMILY,
    "leaves": leaves.FAMILY,
    "lightning_bikes": lightning_bikes.FAMILY,
    "noises": noises.FAMILY,
    "plankton": plankton.FAMILY,
    "playlists": playlists.FAMILY,
    "weather": weather.FAMILY,
}
