"""Cost of FullGrad beside a plain implementation, and completeness over a zoo.

Times are CPU times of 224 x 224 images as a multiple of forward and input gradient, arms
interleaved, medians; memory is what one call adds to the peak of a new process. The plain
implementation keeps the results of convolutions and batch norms with module hooks, and enlarges
each channel before they are summed; it knows no implicit biases of activations.
"""

from __future__ import annotations

import argparse

from benchmarks.fullgrad.completeness import completeness_table
from benchmarks.fullgrad.cost import cost_table, peak_of_arm


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fullgrad", description=__doc__)
    parser.add_argument("--batch", type=int, default=8, help="images per batch (default: 8)")
    parser.add_argument("--rounds", type=int, default=5, help="measurements (default: 5)")
    parser.add_argument("--peak", nargs=2, metavar=("NETWORK", "ARM"), help="memory of one arm")
    given = parser.parse_args()
    if given.peak:
        name, arm = given.peak
        print(peak_of_arm(name, arm, given.batch))
        return
    print(completeness_table())
    print()
    print(cost_table(given.batch, given.rounds))


if __name__ == "__main__":
    main()
