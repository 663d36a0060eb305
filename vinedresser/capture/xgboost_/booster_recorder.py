"""Recording of one booster after a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xgboost import Booster

from vinedresser.capture.adapters.tree_table import TreeTable, keep_trees, tree_names
from vinedresser.capture.recording.recording import Recording
from vinedresser.capture.recording.tensor_copier import ArrayCopier
from vinedresser.capture.shield import Shield
from vinedresser.capture.xgboost_.booster_info import BoosterInfo, coefficients
from vinedresser.capture.xgboost_.contributions import (
    IMPORTANCES,
    Importance,
    NewestRounds,
    ShapleyValues,
)
from vinedresser.capture.xgboost_.data import DataSet
from vinedresser.capture.xgboost_.ubjson import read_ubjson
from vinedresser.store.collections.collection import TRAINED_ROWS
from vinedresser.store.reductions.sampling import some_rows
from vinedresser.store.step_record import StepRecord

# The kinds of tensors recorded here; in most rounds none is due.
_KINDS = (
    *("feature_importance", "trees", "shap", "inputs", "predictions", "labels"),
    *("weights", "biases"),
)
_GIVE_DATA = (
    "XGBoost does not pass the data to callbacks; use hook.xgboost(train=…, validation=…), each a "
    "DMatrix or (X, y)"
)


class BoosterRecorder:
    """Records importance, trees, predictions and Shapley values of a booster.

    Args:
        copier: copies arrays into recordings.
        shield: isolates errors and reports what cannot be captured.
        train: training data; may be empty.
        validation: evaluation sets.
        shap_rows: maximum number of rows for Shapley values.
        prefix: prefix of the names, such as "fold0."; "" for a single booster.
    """

    def __init__(
        self,
        copier: ArrayCopier,
        shield: Shield,
        train: Sequence[DataSet],
        validation: Sequence[DataSet],
        *,
        shap_rows: int,
        advises: bool,
        prefix: str = "",
    ) -> None:
        self._advises = advises
        self._copier = copier
        self._guard = shield.guard
        self._report = shield.report
        self._train = train
        self._validation = validation
        self._shap_rows = shap_rows
        self._prefix = prefix
        # Names of the evaluation sets whose rows were looked for among those of the training.
        self._compared: set[str] = set()
        self._importance = Importance()
        self._shapley_values: ShapleyValues | None = None
        self._parts = [
            shield.guard(f"recording {what}", part)
            for what, part in {
                "feature importance": self._record_importance,
                "trees": self._record_trees,
                "coefficients": self._record_coefficients,
                "predictions": self._record_train,
                "Shapley values": self._record_shapley_values,
            }.items()
        ]

    def names(self) -> list[str]:
        """Return the names of all tensors that may be recorded, except those of linear boosters."""
        data = [one.name for one in (*self._train, *self._validation)]
        words = {
            "labels": data,
            "predictions": data,
            "feature_importance": IMPORTANCES,
            "shap": ("mean_abs", "values"),
        }
        names = [f"{kind}/{self._prefix}{word}" for kind, some in words.items() for word in some]
        return [*names, *(self._inputs_of(one) for one in data), *tree_names(self._prefix)]

    def record_training(self, recording: Recording, booster: Booster, info: BoosterInfo) -> None:
        """Record what is due of the booster and the training data after a round."""
        if not any(map(recording.due.reaches, _KINDS)):
            return
        rounds = NewestRounds(booster)
        for part in self._parts:
            part(recording, rounds, info)

    def record_loss(
        self, recording: Recording, booster: Booster, info: BoosterInfo, metric: str
    ) -> None:
        """Record the loss of training data that XGBoost does not evaluate, if it is known and due.

        Args:
            recording: the recording of a train step.
            booster: the booster after a round.
            info: its properties.
        """
        for data in self._train:
            name = f"losses/{data.name}-{metric}"
            if recording.due.ask(name):
                value = data.loss(booster, metric, kept=info.additive)
                if not math.isnan(value):
                    recording.add_scalar(name, value)

    def record_evaluation(self, recording: Recording, booster: Booster, info: BoosterInfo) -> None:
        """Record what is due of the evaluation sets after a round."""
        if any(map(recording.due.reaches, _KINDS)):
            for data in self._validation:
                self._record_data(recording, booster, info, data, some_rows)
                self._record_trained_rows(recording, data)

    def _record_trained_rows(self, recording: Recording, data: DataSet) -> None:
        """Record once which share of the rows of an evaluation set are training rows."""
        name = f"{TRAINED_ROWS}{self._prefix}{data.name}"
        if data.name in self._compared or not recording.due.ask(name):
            return
        self._compared.add(data.name)
        shares = [data.share_of(train) for train in self._train]
        if shares and not math.isnan(max(shares)):
            recording.add_scalar(name, max(shares))

    def _record_data(
        self,
        recording: Recording,
        booster: Booster,
        info: BoosterInfo,
        data: DataSet,
        chosen: Callable[[NDArray[Any], int | None], NDArray[Any]],
    ) -> None:
        """Record predictions, labels and features of a data set.

        Args:
            booster: the booster after a round.
            chosen: selects rows of an array: ``chosen(array, maximum)``; None for all.
        """
        name = f"{self._prefix}{data.name}"
        predictions = partial(data.predictions, booster, kept=info.additive)
        self._compute(recording, f"predictions/{name}", predictions, chosen)
        self._compute(recording, f"labels/{name}", data.labels, chosen)
        self._compute(recording, self._inputs_of(data.name), lambda: data.inputs, chosen)

    def _inputs_of(self, data: str) -> str:
        """Return the name of the features of a data set."""
        return f"inputs/batch[{self._prefix}{data}]"

    def _record_train(self, recording: Recording, rounds: NewestRounds, info: BoosterInfo) -> None:
        chosen = partial(_drawn, seed=rounds.booster.num_boosted_rounds())
        for data in self._train:
            self._record_data(recording, rounds.booster, info, data, chosen)
        if self._advises and not (self._train or self._validation):
            names = ("predictions/train", "labels/train", "inputs/batch[train]", "shap/values")
            kinds = [name.partition("/")[0] for name in names if recording.due.ask(name)]
            if kinds:
                self._report(f"{', '.join(kinds)} not captured: {_GIVE_DATA}")

    def _record_coefficients(
        self, recording: Recording, rounds: NewestRounds, info: BoosterInfo
    ) -> None:
        if info.booster == "gblinear":
            for kind, values in coefficients(rounds.booster).items():
                self._keep(recording, f"{kind}/{self._prefix}linear", values)

    def _record_importance(
        self, recording: Recording, rounds: NewestRounds, info: BoosterInfo
    ) -> None:
        names = {kind: f"feature_importance/{self._prefix}{kind}" for kind in IMPORTANCES}
        if any(map(recording.due.ask, names.values())):
            if info.booster == "gblinear":
                found = self._importance.of_coefficients(rounds.booster)
            else:
                found = self._importance.of_trees(rounds, cut=info.grows)
            for kind, values in found.items():
                self._keep(recording, names[kind], values)

    def _record_trees(self, recording: Recording, rounds: NewestRounds, info: BoosterInfo) -> None:
        names = [name for name in tree_names(self._prefix) if recording.due.ask(name)]
        if not names:
            return
        if info.booster == "gblinear":
            self._report("trees not captured: a gblinear booster has none")
        elif not info.grows:
            self._report(
                "trees not captured: XGBoost does not expose them while it updates a model"
            )
        else:
            recording.awaited.update(names)
            self._read_later(recording, _serialize(rounds.recent()))

    def _read_later(self, recording: Recording, document: bytes) -> None:
        """Convert serialized trees in the writer's thread."""

        def complete(record: StepRecord) -> None:
            keep_trees(recording, self._copier, _newest_trees(document), self._prefix)
            record.scalars = recording.scalars()

        recording.arriving.append(self._guard("reading trees", complete))
        recording.arriving_bytes += len(document)

    def _record_shapley_values(
        self, recording: Recording, rounds: NewestRounds, info: BoosterInfo
    ) -> None:
        names = [f"shap/{self._prefix}{word}" for word in ("values", "mean_abs")]
        if not any(recording.due.ask(name) for name in names):
            return
        if info.vector_leaf:
            self._report(
                "shap not captured: XGBoost cannot compute it for trees with vector leaves"
            )
            return
        shapley_values = self._shapley_values or self._sampled(info)
        if shapley_values is None:
            return
        self._shapley_values = shapley_values
        values = shapley_values.values(rounds)
        self._keep(recording, names[0], values)
        self._keep(recording, names[1], np.abs(values[..., :-1]).mean(axis=0))

    def _sampled(self, info: BoosterInfo) -> ShapleyValues | None:
        """Return Shapley values of a sample; None if there is no sample."""
        sets = (*self._train, *self._validation)
        if not sets:
            return None
        sample = sets[0].some(self._shap_rows)
        if sample is None:
            self._report(
                f"shap not captured: rows of {sets[0].name} cannot be sliced; pass a small "
                "DMatrix: hook.xgboost(train=sample)"
            )
            return None
        return ShapleyValues(sample, additive=info.additive)

    def _compute(
        self,
        recording: Recording,
        name: str,
        compute: Callable[[], NDArray[Any]],
        chosen: Callable[[NDArray[Any], int | None], NDArray[Any]],
    ) -> None:
        """Record an array if it is due, computing it only then, and if it is not empty."""
        ask = recording.due.ask(name)
        values = compute() if ask else np.zeros(0)
        if not values.size:
            return
        if ask.tensor:
            rows = chosen(values, ask.rows)
            self._copier.keep(recording, name, rows, ask._replace(reductions=frozenset()))
        if ask.reductions:
            self._copier.keep(recording, name, values, ask._replace(tensor=False))

    def _keep(self, recording: Recording, name: str, values: NDArray[np.generic]) -> None:
        if ask := recording.due.ask(name):
            self._copier.keep(recording, name, values, ask)


def _drawn(values: NDArray[Any], most: int | None, *, seed: int) -> NDArray[Any]:
    """Draw random rows, different ones in each round.

    Args:
        values: [N, ...], any dtype.
        most: maximum number of rows; None for all.
        seed: seed of the draw, the same for arrays with corresponding rows.
    """
    if most is None or len(values) <= most:
        return values
    return values[np.random.default_rng(seed).choice(len(values), most, replace=False)]


def _serialize(rounds: Booster) -> bytes:
    """Serialize a booster for `_newest_trees`, which may run in another thread.

    Args:
        rounds: a booster with few rounds, so that the cost does not grow during a training.
    """
    return bytes(rounds.save_raw("ubj"))


def _newest_trees(document: bytes) -> list[TreeTable]:
    """Return the trees of the newest round: ``num_parallel_tree`` per class or output.

    Args:
        document: a booster from `_serialize`.

    Raises:
        CorruptData: The document is not valid.
    """
    gradient_booster = read_ubjson(document)["learner"]["gradient_booster"]
    # DART nests the trees one level deeper.
    model = gradient_booster.get("gbtree", gradient_booster)["model"]
    # The first tree of each round, followed by the total number of trees.
    first = model["iteration_indptr"][-2]
    return [
        _table(tree, int(group))
        for tree, group in zip(model["trees"][first:], model["tree_info"][first:], strict=True)
    ]


def _table(tree: dict[str, Any], group: int) -> TreeTable:
    """Convert a tree from the format of XGBoost."""
    left = tree["left_children"].astype(np.int32)
    right = tree["right_children"].astype(np.int32)
    condition = tree["split_conditions"].astype(np.float32)
    outputs = int(tree["tree_param"]["size_leaf_vector"])
    leaf_value = condition
    if outputs > 1:
        # For a leaf, the right child is the index of its vector.
        vectors = tree["leaf_weights"].astype(np.float32).reshape(-1, outputs)
        leaf_value = vectors[np.where(left < 0, right, 0)]
    categorical = tree["split_type"] == 1
    return TreeTable.of(
        group,
        left=left,
        right=right,
        # uint32; the maximum for a pruned node.
        split_feature=tree["split_indices"].astype(np.int64),
        threshold=np.where(categorical, np.float32(np.nan), condition),
        default_left=tree["default_left"].astype(bool),
        gain=tree["loss_changes"].astype(np.float32),
        cover=tree["sum_hessian"].astype(np.float32),
        leaf_value=leaf_value,
    )
