"""Statistics kept instead of, or beside, a tensor.

A reduction is a word, ``[channel_][abs_]<statistic>``. With n elements x_i, all of them counted,
whatever the shape, these are one float64 each:

    min, max     smallest and greatest element
    mean         sum(x_i) / n
    sum          sum(x_i)
    l1           sum(|x_i|)
    l2           sqrt(sum(x_i^2)), the Euclidean norm
    variance     sum((x_i - mean)^2) / n, of the population (ddof 0)
    std          sqrt(variance)
    zero_share   share of elements equal to 0, from 0 to 1
    nonfinite    number of elements that are NaN or infinite

Two are dear. They are taken of a sample of at most 65,536 elements (`sampling.places`), of all
where there are no more:

    p<percent>   the quantile below which so many percent lie, from p0 to p100, such as p99.9. With
                 the k sampled elements in ascending order, x[j] + t (x[j + 1] - x[j]) where j and t
                 are the whole and the broken part of percent / 100 (k - 1)
    histogram    [2 + 64]: smallest and greatest finite element, then how many finite elements fall
                 into each of 64 equal bins between them. A bin has its lower edge but not its upper
                 one, the last has both. Where all are equal they are in the last; where none is
                 finite, the edges are NaN and the counts 0

Two stand alone, without ``abs_`` or ``channel_``:

    fingerprint      CRC-32C of the elements' bytes in row-major order, little-endian: an integer,
                     the same if and only if (but for one case in 2^32) all bits are
    unit_similarity  of a weight matrix, whose units are its channels: the median over units of the
                     greatest absolute cosine with any other, of at most 64 evenly strided units
                     (`units.unit_similarity`), of the same sample of their elements as `channel_`
                     statistics have of so many channels; taken on the writer's thread

``abs_`` takes the statistic of the |x_i|. ``channel_`` takes it of each channel by itself: [C], or
[C, 2 + 64] for the histogram; `channels.channel_axis` says what a channel is. The sample of each
channel is at most 65,536 / C elements (one, where there are more channels than that).

A NaN among the elements makes every statistic NaN but zero_share and nonfinite, which count, and
the histogram, which leaves out what is not finite. Of a sampled statistic that is a NaN in the
sample. Infinities are computed with as numbers: the mean of 1 and inf is inf, its std is NaN.
Of no elements, sum, l1, l2 and nonfinite are 0 and the others NaN. Booleans count as 0 and 1; of
complex elements the magnitudes are taken.
"""

from __future__ import annotations

from vinedresser.store.reductions.channels import channel_axis
from vinedresser.store.reductions.computing import compute_statistics, reduce_array
from vinedresser.store.reductions.distribution import Histogram
from vinedresser.store.reductions.naming import (
    REDUCTIONS,
    base_name,
    derived_name,
    parse_reduction,
    plan_reductions,
)
from vinedresser.store.reductions.statistics import Statistics

__all__ = [
    "REDUCTIONS",
    "Histogram",
    "Statistics",
    "base_name",
    "channel_axis",
    "derived_name",
    "parse_reduction",
    "plan_reductions",
    "reduce_array",
    "compute_statistics",
]
