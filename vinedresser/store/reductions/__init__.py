"""Statistics kept instead of a tensor, or in addition to it.

A reduction is named ``[channel_][abs_]<statistic>``. For the n elements x_i of a tensor of any
shape, these are one float64 each:

    min, max     smallest and largest element
    mean         sum(x_i) / n
    sum          sum(x_i)
    l1           sum(|x_i|)
    l2           sqrt(sum(x_i^2)), the Euclidean norm
    variance     sum((x_i - mean)^2) / n, the population variance (ddof 0)
    std          sqrt(variance)
    zero_share   fraction of elements equal to 0
    nonfinite    number of elements that are NaN or infinite

Two are expensive. They are computed from a sample of at most 65,536 elements (`sampling.places`),
which is exact for smaller tensors:

    p<percent>   percentile, from p0 to p100, such as p99.9. For the k sampled elements in ascending
                 order, x[j] + t (x[j + 1] - x[j]), where j and t are the integer and the fractional
                 part of percent / 100 (k - 1)
    histogram    [2 + 64]: smallest and largest finite element, then the number of finite elements
                 in each of 64 equal bins between them. Bins are half-open and include their lower
                 edge; the last includes both. If all elements are equal, they are in the last bin;
                 if none is finite, the edges are NaN and the counts 0

Two take no prefix:

    fingerprint      CRC-32C of the elements' bytes in row-major order, little-endian: an integer.
                     Equal bits have equal fingerprints; different bits collide with
                     probability 2^-32
    unit_similarity  for a weight matrix, whose units are its channels: the median over units of the
                     largest absolute cosine with any other unit (`unit_similarity`), of at most 64
                     evenly strided units and the same sample of their elements as for `channel_`
                     statistics; computed on the writer's thread

``abs_`` computes the statistic of the |x_i|. ``channel_`` computes it per channel
(`computing.channel_axis`): [C], or [C, 2 + 64] for the histogram. The sample of each channel has at
most 65,536 / C elements, but at least one.

A NaN among the elements (for sampled statistics, in the sample) makes every statistic NaN, except
zero_share and nonfinite, which count, and the histogram, which ignores non-finite elements.
Infinities are numbers: the mean of 1 and inf is inf, its std is NaN. For no elements, sum, l1, l2
and nonfinite are 0 and the others NaN. Booleans count as 0 and 1; complex elements are replaced by
their magnitudes.
"""

from __future__ import annotations

from vinedresser.store.reductions.computing import channel_axis, compute_statistics, reduce_array
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
