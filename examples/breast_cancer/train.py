"""Train boosted trees on scikit-learn's breast cancer data (569 tumours, 30 features).

The lines that add capture are marked.
"""

from __future__ import annotations

import argparse

import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from vinedresser.capture import Hook


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--eta", type=float, default=0.3)
    parser.add_argument("--max-depth", type=int, default=6)
    parser.add_argument("--subsample", type=float, default=1.0)
    parser.add_argument("--min-child-weight", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Train and evaluate."""
    options = parse()
    x, y = load_breast_cancer(return_X_y=True)
    x_train, x_valid, y_train, y_valid = train_test_split(
        x, y, test_size=0.3, random_state=0, stratify=y
    )
    train, valid = xgboost.DMatrix(x_train, y_train), xgboost.DMatrix(x_valid, y_valid)
    settings = {
        "objective": "binary:logistic",
        "eta": options.eta,
        "max_depth": options.max_depth,
        "subsample": options.subsample,
        "min_child_weight": options.min_child_weight,
        "seed": options.seed,
        "nthread": 1,
    }
    with Hook("runs/breast-cancer") as hook:  # <- first line
        xgboost.train(
            settings,
            train,
            options.rounds,
            evals=[(train, "train"), (valid, "valid")],
            callbacks=[hook.xgboost(train=train, validation=valid)],  # <- second line
            verbose_eval=False,
        )


if __name__ == "__main__":
    main()
