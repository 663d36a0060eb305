"""Families that nobody looks at while working on rules; `--sealed` runs them.

They were written without a look at the rules, and judged once; see docs/performance.md.
"""

from __future__ import annotations

from benchmarks.world.family import Family
from benchmarks.world.sealed import (
    boosted_lifetimes,
    channel,
    fraud,
    futures,
    hashing,
    keras_motifs,
    keras_towers,
    lightning_activities,
    masked_rows,
    private_rows,
    sessions,
    sharpness,
    signatures,
    slots,
    strings,
    tomography,
    wishes,
    zero_inflated,
)
from benchmarks.world.sealed.decisions import (
    arms,
    cloning,
    direct_preferences,
    dose_response,
    portfolio,
)

__all__ = ["FAMILIES"]

FAMILIES: dict[str, Family] = {
    "arms": arms.FAMILY,
    "boosted_lifetimes": boosted_lifetimes.FAMILY,
    "channel": channel.FAMILY,
    "cloning": cloning.FAMILY,
    "direct_preferences": direct_preferences.FAMILY,
    "dose_response": dose_response.FAMILY,
    "fraud": fraud.FAMILY,
    "futures": futures.FAMILY,
    "hashing": hashing.FAMILY,
    "keras_motifs": keras_motifs.FAMILY,
    "keras_towers": keras_towers.FAMILY,
    "lightning_activities": lightning_activities.FAMILY,
    "masked_rows": masked_rows.FAMILY,
    "portfolio": portfolio.FAMILY,
    "private_rows": private_rows.FAMILY,
    "sessions": sessions.FAMILY,
    "sharpness": sharpness.FAMILY,
    "signatures": signatures.FAMILY,
    "slots": slots.FAMILY,
    "strings": strings.FAMILY,
    "tomography": tomography.FAMILY,
    "wishes": wishes.FAMILY,
    "zero_inflated": zero_inflated.FAMILY,
}
