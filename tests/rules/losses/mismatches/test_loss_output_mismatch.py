"""The rule about mismatches of last activation, loss, output width and labels."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.rules.losses.trainings import Case, digits_case, judged, regression_case
from tests.rules.trainings import digits
from vinedresser.capture import Hook, open_run
from vinedresser.errors import ConfigError
from vinedresser.rules.base import capture_for
from vinedresser.rules.engine import Engine
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.loss_output_mismatch import LossOutputMismatch
from vinedresser.rules.losses.mismatch import output_form
from vinedresser.store.finding import Finding
from vinedresser.testing.runs import make_run, step_record


def network(out: int, last: nn.Module | None = None, inner: int = 64) -> nn.Module:
    layers = [nn.Linear(inner, 32), nn.ReLU(), nn.Linear(32, out)]
    return nn.Sequential(*layers, *([last] if last else []))


def found(case: Case, directory: Path) -> Finding | None:
    findings = judged(case, directory / "run", LossOutputMismatch())
    assert all(finding.fault == "loss_output_mismatch" for finding in findings)
    assert len(findings) <= 1
    return findings[0] if findings else None


def test_softmax_before_a_loss_on_logits_reports_the_lower_bound(tmp_path: Path) -> None:
    finding = found(digits_case(network(10, nn.Softmax(1)), steps=60), tmp_path)
    assert finding is not None
    assert finding.evidence["kind"] == "double_softmax"
    # It learns, so it does not stop the run.
    assert finding.severity == "warning"
    assert finding.step <= 15
    # The loss of perfect probabilities: -ln(e / (e + 9)).
    assert f"{-math.log(math.e / (math.e + 9)):.3g}" in finding.cause


def test_a_loss_that_no_framework_defines_is_not_known_by_its_name(tmp_path: Path) -> None:
    class NLLLoss(nn.Module):
        def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
            return -outputs.log_softmax(1).gather(1, labels[:, None]).mean()

    assert found(digits_case(network(10), NLLLoss(), steps=60), tmp_path) is None


def test_a_hopeless_mismatch_stops_the_run(tmp_path: Path) -> None:
    case = digits_case(network(1, nn.Softmax(1)), nn.BCELoss(), steps=60)
    case.y = (case.y > 4).float()[:, None]
    finding = found(case, tmp_path)
    assert finding is not None
    assert (finding.evidence["kind"], finding.severity) == ("one_unit_softmax", "stop")
    assert "use sigmoid and a binary cross-entropy" in finding.remedy


def test_a_cross_entropy_between_classes_of_one_unit(tmp_path: Path) -> None:
    case = digits_case(network(1), nn.CrossEntropyLoss(), steps=60)
    case.y = (case.y > 4).float()[:, None]
    finding = found(case, tmp_path)
    assert finding is not None
    assert (finding.evidence["kind"], finding.severity) == ("classes_of_one_unit", "stop")
    assert finding.step <= 10


@pytest.mark.thorough
def test_a_relu_before_the_loss_that_dies(tmp_path: Path) -> None:
    # Nine of ten labels are 0, which push all outputs down to 0.
    case = digits_case(network(1, nn.ReLU()), nn.BCEWithLogitsLoss(), steps=300)
    case.y = (case.y == 3).float()[:, None]
    finding = found(case, tmp_path)
    assert finding is not None
    assert finding.evidence["kind"] == "relu"


def test_a_sigmoid_that_has_diverged_is_no_softmax_over_one_unit(tmp_path: Path) -> None:
    # Its first predictions are not known: another loss is used in the first steps.
    class Judge(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network(1)

        def forward(self, rows: Tensor) -> Tensor:
            result: Tensor = self.inner(rows).sigmoid()
            return result

    torch.manual_seed(0)
    x, y = digits().x, torch.ones(len(digits().x), 1)
    model, loss = Judge(), nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3.0)
    collections = capture_for([LossOutputMismatch()]).collections
    with Hook(tmp_path / "run", collections=collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for step in range(40):
            optimizer.zero_grad()
            outputs = model(x)
            (outputs.log().mean().neg() if step < 4 else loss(outputs, y)).backward()
            optimizer.step()
    assert float(model(x).detach().min()) == 1.0
    assert judge(open_run(tmp_path / "run"), [LossOutputMismatch()]) == []


def test_negative_log_likelihood_of_probabilities(tmp_path: Path) -> None:
    finding = found(digits_case(network(10, nn.Softmax(1)), nn.NLLLoss(), steps=60), tmp_path)
    assert finding is not None
    assert finding.evidence["kind"] == "no_logarithms"


def test_shapes_that_broadcast(tmp_path: Path) -> None:
    case = regression_case(network(1, inner=10), steps=60)
    case.y = case.y[:, 0]
    with pytest.warns(UserWarning, match="target size"):
        finding = found(case, tmp_path)
    assert finding is not None
    assert finding.evidence["kind"] == "broadcast"
    assert "labels[:, None]" in finding.remedy


def test_shapes_that_broadcast_in_a_plain_function(tmp_path: Path) -> None:
    case = regression_case(network(1, inner=10), steps=100)
    case.y = case.y[:, 0]
    case.loss = lambda outputs, labels: ((outputs - labels) ** 2).mean()
    finding = found(case, tmp_path)
    assert finding is not None
    assert finding.evidence["kind"] == "broadcast"


class Sigmoid(nn.Module):
    """A network whose caller applies a sigmoid, for all that its modules tell."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network(1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x).sigmoid()
        return found


def test_a_sigmoid_outside_the_model_before_a_loss_that_takes_logits(tmp_path: Path) -> None:
    """It holds values close to 0 and to 1, although the model learns well."""
    case = digits_case(Sigmoid(), nn.BCEWithLogitsLoss(), lr=1e-2, steps=200)
    case.y = (case.y > 4).float()[:, None]
    finding = found(case, tmp_path)
    assert finding is not None
    assert (finding.evidence["kind"], finding.severity) == ("sigmoid", "warning")


@pytest.mark.parametrize("crossed", [True, False])
def test_a_loop_that_broadcasts_before_the_loss(*, crossed: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    data, model, loss, rule = digits(), network(1), nn.BCEWithLogitsLoss(), LossOutputMismatch()
    optimizer = torch.optim.Adam(model.parameters())
    with Hook(tmp_path / "run", collections=capture_for([rule]).collections) as hook:
        hook.watch(model, loss=loss, optimizer=optimizer)
        for rows in torch.arange(1280).split(32):
            optimizer.zero_grad()
            labels = (data.y[rows] > 4).float()
            outputs, wanted = model(data.x[rows]), labels if crossed else labels[:, None]
            loss(*torch.broadcast_tensors(outputs, wanted)).backward()
            optimizer.step()
    kinds = [one.evidence["kind"] for one in judge(open_run(tmp_path / "run"), [rule])]
    assert kinds == (["broadcast"] if crossed else [])


def test_relu_with_unreachable_targets(tmp_path: Path) -> None:
    finding = found(regression_case(network(1, nn.ReLU(), inner=10), steps=60), tmp_path)
    assert finding is not None
    assert finding.evidence["kind"] == "out_of_reach"
    assert "R2 cannot exceed" in finding.cause


def test_relu_before_a_loss_that_takes_logits(tmp_path: Path) -> None:
    # It learns: classes whose outputs are positive can be told apart.
    finding = found(digits_case(network(10, nn.ReLU()), lr=3e-3, steps=150), tmp_path)
    assert finding is not None
    assert (finding.evidence["kind"], finding.severity) == ("relu", "warning")


def test_one_unit_for_three_classes(tmp_path: Path) -> None:
    # One of Keras, since torch's own rejects such labels.
    class BinaryCrossentropy(nn.Module):
        __module__ = "keras.losses"

        def forward(self, outputs: Tensor, labels: Tensor) -> Tensor:
            p = outputs.clamp(1e-7, 1 - 1e-7)
            return -(labels * p.log() + (1 - labels) * (1 - p).log()).mean()

    case = digits_case(network(1, nn.Sigmoid()), BinaryCrossentropy(), steps=60)
    case.y = (case.y % 3).float()[:, None]
    finding = found(case, tmp_path)
    assert finding is not None
    assert (finding.evidence["kind"], finding.severity) == ("labels_not_binary", "stop")
    assert finding.cause.endswith("there are at least 3")
    assert "one unit for each class, softmax" in finding.remedy


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("out", "last", "loss", "labels"),
    [
        (10, None, nn.CrossEntropyLoss(), "numbers"),
        (10, nn.LogSoftmax(1), nn.NLLLoss(), "numbers"),
        (1, None, nn.BCEWithLogitsLoss(), "binary"),
        (1, nn.Sigmoid(), nn.BCELoss(), "binary"),
        (1, None, nn.BCEWithLogitsLoss(), "soft"),
        # More outputs than classes.
        (12, None, nn.CrossEntropyLoss(), "numbers"),
        # An unusual choice that learns well.
        (10, nn.Softmax(1), nn.MSELoss(), "one_hot"),
    ],
)
def test_matching_losses_and_outputs_are_ignored(
    out: int, last: nn.Module | None, loss: nn.Module, labels: str, tmp_path: Path
) -> None:
    case = digits_case(network(out, last), loss, steps=250)
    if labels == "binary":
        case.y = (case.y > 4).float()[:, None]
    elif labels == "soft":
        # As those of images in adversarial trainings: 0 to 0.3, and 0.7 to 1.2.
        softened = torch.rand(len(case.y), generator=torch.Generator().manual_seed(0))
        case.y = torch.where(case.y > 4, 0.7 + 0.5 * softened, 0.3 * softened)[:, None]
    elif labels == "one_hot":
        case.y = nn.functional.one_hot(case.y, 10).float()
    assert found(case, tmp_path) is None


@pytest.mark.parametrize("several", [True, False])
def test_a_softmax_over_labels_that_exclude_nothing(several: bool, tmp_path: Path) -> None:
    case = digits_case(network(10, nn.Softmax(1)), nn.BCELoss(), steps=60)
    case.y = nn.functional.one_hot(case.y, 10).float()
    if several:
        case.y = torch.maximum(case.y, case.y.roll(1, 1))
    finding = found(case, tmp_path)
    assert (finding is not None and finding.evidence["kind"]) == (several and "shares_of_several")


@pytest.mark.thorough
@pytest.mark.parametrize("last", [nn.ReLU(), nn.Sigmoid()])
def test_reachable_targets_are_ignored(last: nn.Module, tmp_path: Path) -> None:
    case = regression_case(network(1, last, inner=10), steps=200)
    case.y = (case.y - case.y.min()) / (case.y.max() - case.y.min())
    assert found(case, tmp_path) is None


@pytest.mark.thorough
def test_a_name_contradicted_by_values_is_ignored(tmp_path: Path) -> None:
    # Named as a loss of Keras, but takes logits.
    class SparseCategoricalCrossentropy(nn.CrossEntropyLoss):
        __module__ = "keras.losses"

    assert found(digits_case(network(10), SparseCategoricalCrossentropy()), tmp_path) is None


def test_rows_without_a_class(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    records = []
    for step in range(0, 30, 5):
        shares = generator.dirichlet(np.ones(3), size=16)
        # Classes 3 and 4 are not among the three outputs.
        labels = np.eye(5)[generator.integers(5, size=16)][:, :3]
        records.append(
            step_record(
                step,
                tensors={
                    "labels/CategoricalCrossentropy": labels,
                    "predictions/CategoricalCrossentropy": shares,
                },
                scalars={
                    "losses/CategoricalCrossentropy": float(
                        -(labels * np.log(shares)).sum(1).mean()
                    )
                },
            )
        )
    run = make_run(tmp_path / "run", records)
    (finding,) = judge(run, [LossOutputMismatch()])
    assert finding.evidence["kind"] == "too_narrow"
    assert "have no class" in finding.seen


def test_labels_that_torch_ignores_are_no_classes(tmp_path: Path) -> None:
    case = digits_case(network(10), nn.CrossEntropyLoss(ignore_index=10), steps=60)
    case.y = torch.where(torch.arange(len(case.y)) % 9 == 0, 10, case.y)
    assert found(case, tmp_path) is None


@pytest.mark.parametrize(("beyond", "kind"), [(255, None), (3, "too_narrow")])
def test_classes_beyond_the_outputs(beyond: int, kind: str | None, tmp_path: Path) -> None:
    """As Keras allows them: one number far away is ignored, the next class has no output."""
    generator = np.random.default_rng(0)
    records = []
    for step in range(0, 30, 5):
        labels = generator.integers(4, size=16)
        labels[:2] = 3, 0
        tensors = {
            "labels/SparseCategoricalCrossentropy": np.where(labels == 3, beyond, labels),
            "predictions/SparseCategoricalCrossentropy": generator.dirichlet(np.ones(3), size=16),
        }
        scalars = {"losses/SparseCategoricalCrossentropy": 1.1}
        records.append(step_record(step, tensors=tensors, scalars=scalars))
    run = make_run(tmp_path / "run", records, framework="keras")
    kinds = [one.evidence["kind"] for one in judge(run, [LossOutputMismatch()])]
    assert kinds == ([] if kind is None else [kind])


def test_output_form() -> None:
    logits = torch.randn(50, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    raw = output_form(logits.numpy())
    shares = output_form(logits.softmax(1).numpy())
    logs = output_form(logits.log_softmax(1).numpy())
    ones = output_form(np.ones((5, 1)))
    assert raw
    assert shares
    assert logs
    assert ones
    assert (raw.shares, raw.logarithms) == (False, False)
    assert (shares.shares, shares.logarithms) == (True, False)
    assert (logs.shares, logs.logarithms) == (False, True)
    assert ones.ones
    assert output_form(np.array([[math.nan]])) is None


@pytest.mark.parametrize("known", [False, True])
def test_a_negated_loss_that_is_known_after_the_first_step(*, known: bool, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 32)
    scores = [generator.normal(size=(32, 3)) for _ in range(30)]
    run = make_run(
        tmp_path / "run",
        [
            step_record(
                step,
                scalars={"losses/loss": -1.5 - step / 10},
                tensors={"labels/batch": labels, "predictions/batch": scores[step]},
            )
            for step in range(30)
        ],
        optimizers=[{"type": "SGD", "settings": {}}],
    )
    engine, findings = Engine([LossOutputMismatch()]), []
    engine.begin(run.info)
    for step in run.follow():
        if known and step.step == 1:
            setup = {"function": "cross_entropy", "negated": True, "activation": ""}
            engine.on_record(replace(run.info, losses={"loss": setup}))
        findings += engine.update(step)
    assert [finding.evidence["kind"] for finding in findings] == (["negated"] if known else [])


@pytest.mark.parametrize(
    ("loss", "last", "falls", "kinds"),
    [
        ("categorical_crossentropy", "sigmoid", 0.0, ["sigmoid_of_classes"]),
        # Keras trains other probabilities than it predicts, also where the classes are right.
        ("categorical_crossentropy", "sigmoid", 1.0, ["sigmoid_of_classes"]),
        ("categorical_crossentropy", "", 1.0, []),
        ("binary_crossentropy", "sigmoid", 0.0, []),
    ],
)
def test_a_sigmoid_belongs_to_a_binary_cross_entropy(
    loss: str, last: str, falls: float, kinds: list[str], tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    rows = [generator.uniform(0.3, 0.6, size=(32, 3)) for _ in range(200)]
    run = make_run(
        tmp_path / "run",
        [
            step_record(
                step,
                scalars={"losses/loss": 1.1 - falls * step / 250},
                tensors={
                    "labels/batch": np.eye(3)[generator.integers(0, 3, 32)],
                    "predictions/batch": rows[step],
                },
            )
            for step in range(200)
        ],
        framework="keras",
        modules={"Sequential": ["Sequential", "", "model"], "dense": ["Dense", last]},
        losses={"loss": {"type": loss, "settings": {"from_logits": False}}},
    )
    findings = judge(run, [LossOutputMismatch()])
    assert [finding.evidence["kind"] for finding in findings] == kinds
    assert all((finding.severity == "info") == (falls > 0) for finding in findings)


@pytest.mark.parametrize(
    ("last", "loss", "kind"),
    [
        ([nn.Dropout(0.5)], nn.CrossEntropyLoss(), "dropped_outputs"),
        ([nn.Dropout(0.2), nn.LogSoftmax(1)], nn.NLLLoss(), "dropped_outputs"),
        ([nn.Dropout(0.0)], nn.CrossEntropyLoss(), None),
        ([nn.LogSoftmax(1)], nn.NLLLoss(), None),
    ],
)
def test_a_dropout_behind_the_last_weights(
    last: list[nn.Module], loss: nn.Module, kind: str | None, tmp_path: Path
) -> None:
    layers = [nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 10), *last]
    finding = found(digits_case(nn.Sequential(*layers), loss, steps=40), tmp_path)
    assert (finding and finding.evidence["kind"]) == kind
    if finding is not None:
        assert "dropout 4 comes after the last weights" in finding.seen
        assert "move the dropout 4" in finding.remedy


def test_a_head_elsewhere_makes_a_dropout_that_of_its_inputs(tmp_path: Path) -> None:
    torch.manual_seed(0)
    data, loss = digits(), nn.CrossEntropyLoss()
    body, head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5)), nn.Linear(32, 10)
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=3e-3)
    with Hook(
        tmp_path / "run", collections=capture_for([LossOutputMismatch()]).collections
    ) as hook:
        hook.watch(body, loss=loss, optimizer=optimizer)
        for step in range(40):
            chosen = slice(32 * step, 32 * step + 32)
            optimizer.zero_grad()
            loss(head(body(data.x[chosen])), data.y[chosen]).backward()
            optimizer.step()
    assert judge(open_run(tmp_path / "run"), [LossOutputMismatch()]) == []


@pytest.mark.parametrize(
    ("last", "several", "kind"),
    [
        (nn.ReLU(), False, "relu_of_classes"),
        (nn.ReLU(), True, "relu_of_classes"),
        (nn.Sigmoid(), False, None),
        (nn.Identity(), False, None),
    ],
)
def test_a_relu_that_predicts_the_labels_0_and_1(
    last: nn.Module, *, several: bool, kind: str | None, tmp_path: Path
) -> None:
    case = digits_case(network(10 if several else 1, last), nn.MSELoss(), steps=60, batch=64)
    ones = torch.nn.functional.one_hot(case.y, 10).float()
    case.y = ones if several else ones[:, :1]
    finding = found(case, tmp_path)
    assert (finding and finding.evidence["kind"]) == kind
    if finding is not None:
        assert finding.remedy.startswith("use softmax" if several else "use sigmoid")


def test_a_relu_of_counts_is_left_alone(tmp_path: Path) -> None:
    case = digits_case(network(1, nn.ReLU()), nn.MSELoss(), steps=60)
    # Bright pixels in the first row of a digit, of which there is none in some.
    case.y = (case.x[:, :8] > 0.5).sum(1, keepdim=True).float()
    assert found(case, tmp_path) is None


@pytest.mark.parametrize(("last", "kind"), [(nn.Tanh(), "out_of_reach"), (None, None)])
@pytest.mark.parametrize("steps", [1, 4, 9])
def test_what_is_certain_is_said_at_the_end_of_few_steps(
    last: nn.Module | None, kind: str | None, steps: int, tmp_path: Path
) -> None:
    case = regression_case(network(1, last, inner=10), steps=steps)
    case.y = 10 * case.y
    finding = found(case, tmp_path)
    assert (finding and finding.evidence["kind"]) == kind
    if finding is not None:
        assert finding.severity == "warning"
        # Less than that of a mismatch seen in three checks.
        assert finding.confidence < 0.8


@pytest.mark.parametrize(("rows", "kinds"), [(4, []), (16, []), (64, ["double_softmax"])])
def test_few_rows_may_look_like_a_softmax(rows: int, kinds: list[str], tmp_path: Path) -> None:
    """As raw outputs between 0 and 1 do by chance, less their mean."""
    shares = np.random.default_rng(0).dirichlet(np.ones(4), rows)
    logarithms = shares - np.log(np.exp(shares).sum(1, keepdims=True))
    labels = np.arange(rows) % 4
    loss = float(-logarithms[np.arange(rows), labels].mean())
    tensors = {"labels/loss": labels, "predictions/loss": logarithms}
    run = make_run(
        tmp_path / "run",
        [step_record(0, scalars={"losses/loss": loss}, tensors=tensors)],
        framework="torch",
        losses={"loss": {"function": "cross_entropy", "settings": {}}},
    )
    found = judge(run, [LossOutputMismatch()])
    assert [one.evidence["kind"] for one in found] == kinds


@pytest.mark.parametrize(
    ("usual", "rare", "outlier", "kinds"),
    [
        (5.0, 5.0, 0.0, ["out_of_reach"]),
        (1.0, 1.0, 0.0, []),
        (1.0, 1.2, 0.0, []),
        (1.0, 1.0, 50.0, []),
    ],
)
def test_batches_of_one_row_are_judged_by_the_targets_of_all(
    usual: float, rare: float, outlier: float, kinds: list[str], tmp_path: Path
) -> None:
    """A row alone has no variance; one target in ten may be slightly out of reach, or one far."""
    for outputs in (1, 4):
        generator = np.random.default_rng(0)
        run = make_run(
            tmp_path / f"{outputs}",
            [
                step_record(
                    step,
                    scalars={"losses/loss": 0.5},
                    tensors={
                        "labels/batch": generator.random((1, outputs))
                        * (usual if step % 50 else rare)
                        + outlier * (step == 100),
                        "predictions/batch": generator.uniform(0.1, 0.9, (1, outputs)),
                    },
                )
                for step in range(0, 250, 5)
            ],
            framework="keras",
            modules={"Sequential": ["Sequential", "", "model"], "dense": ["Dense", "sigmoid"]},
            losses={"loss": {"type": "mean_squared_error", "settings": {}}},
        )
        found = judge(run, [LossOutputMismatch()])
        assert [one.evidence["kind"] for one in found] == kinds
        # Not by the first rows, which may be unusual.
        assert all(one.step >= 5 * 31 for one in found)


def test_what_was_seen_in_one_check_of_several_is_not_said_at_the_end(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    run = make_run(
        tmp_path / "run",
        [
            step_record(
                step,
                scalars={"losses/loss": 0.5},
                tensors={
                    "labels/batch": generator.uniform(0.1, 0.9, (32, 1)) + 5 * (step == 5),
                    "predictions/batch": generator.uniform(0.1, 0.9, (32, 1)),
                },
            )
            for step in range(8)
        ],
        framework="keras",
        modules={"Sequential": ["Sequential", "", "model"], "dense": ["Dense", "sigmoid"]},
        losses={"loss": {"type": "mean_squared_error", "settings": {}}},
    )
    assert judge(run, [LossOutputMismatch()]) == []


def test_patience_0_raises() -> None:
    with pytest.raises(ConfigError, match="patience = 0"):
        LossOutputMismatch(patience=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize(
    ("last", "kind"),
    [
        ("softmax", None),
        (None, "no_probabilities"),
        ("relu", "no_probabilities"),
        ("sigmoid", "sigmoid_of_classes"),
    ],
)
def test_in_keras(last: str | None, kind: str | None, tmp_path: Path) -> None:
    import keras

    from vinedresser.capture import Hook, open_run
    from vinedresser.rules.base import capture_for

    keras.utils.set_random_seed(0)
    data = digits()
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(10, activation=last),
        ]
    )
    model.compile(keras.optimizers.Adam(3e-3), keras.losses.SparseCategoricalCrossentropy())
    rules = [LossOutputMismatch()]
    with Hook(tmp_path / "run", collections=capture_for(rules).collections) as hook:
        hook.watch(model)
        model.fit(data.x.numpy(), data.y.numpy(), batch_size=32, epochs=3, verbose=0)
    findings = judge(open_run(tmp_path / "run"), rules)
    assert [finding.evidence["kind"] for finding in findings] == ([kind] if kind else [])
