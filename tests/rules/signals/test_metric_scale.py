"""The meaning of metrics by their names, and outcomes that reported metrics decide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sklearn import metrics as reference
from torch import Tensor, nn
from torch.nn import functional

from tests.rules.trainings import batches, digits
from vinedresser.capture.hook.hook import Hook
from vinedresser.rules.base import Rule, capture_for
from vinedresser.rules.data.corrupt_labels import CorruptLabels
from vinedresser.rules.judge import judge
from vinedresser.rules.losses.underfitting import Underfitting
from vinedresser.rules.signals.outcomes.metric_scale import direction, metric_scale
from vinedresser.store.finding import Finding
from vinedresser.store.reading.reader import open_run


@pytest.mark.parametrize(
    ("name", "kind", "guessing"),
    [
        ("metrics/val_acc", "accuracy", 0.1),
        ("testAccuracy", "accuracy", 0.1),
        ("top-1", "accuracy", 0.1),
        ("balanced_accuracy", "balanced accuracy", 0.1),
        ("sparse_categorical_accuracy", "accuracy", 0.1),
        ("held_out_acc", "accuracy", 0.1),
        ("macro_recall", "balanced accuracy", 0.1),
        ("val/recallMacro", "balanced accuracy", 0.1),
        ("test_UAR", "balanced accuracy", 0.1),
        ("top5_acc", "top-5 accuracy", 0.5),
        ("val_error_rate", "error rate", 0.9),
        ("test/top-1 error", "error rate", 0.9),
        ("valid-merror", "error rate", 0.9),
        ("dev_f1", "F1", 0.0),
        ("val/f1_macro", "macro F1", 0.1),
        ("macroF1", "macro F1", 0.1),
        ("macro_f1_score", "macro F1", 0.1),
        ("ROC AUC", "AUC", 0.5),
        ("iou", "IoU", 0.0),
        ("mIoU", "mean IoU", 0.1),
        ("val_mean_iou", "mean IoU", 0.1),
        ("cohen_kappa", "kappa", 0.0),
        ("spearmanr", "correlation", 0.0),
        ("pearson_correlation", "correlation", 0.0),
        ("R^2", "R2", 0.0),
        ("valR2Score", "R2", 0.0),
        ("NSE", "R2", 0.0),
        ("val_wer", "error rate of words", 1.0),
        ("Character Error Rate", "error rate of characters", 1.0),
        ("perplexity", "perplexity", 10.0),
    ],
)
def test_a_name_tells_what_guessing_gives(name: str, kind: str, guessing: float) -> None:
    scale = metric_scale(name, classes=10)
    assert scale is not None
    assert (scale.kind, scale.guessing) == (kind, guessing)
    assert direction(name) == (-1 if kind == "perplexity" or "error" in kind else 1)


@pytest.mark.parametrize(
    "name",
    [
        "probe_accuracy",
        "accuracy_class_3",
        "adversarial accuracy",
        "accurateness",
        "pr_auc",
        "val_error",
        "recall_at_10",
        "mean_recall",
        "correlation",
        "top3",
        "loss_f1",
        "explained_variance",
        "auction",
        "gradient_norm",
    ],
)
def test_other_words_leave_the_meaning_open(name: str) -> None:
    assert metric_scale(name, classes=10) is None


def test_without_classes_an_accuracy_has_no_scale() -> None:
    assert metric_scale("accuracy", classes=0) is None
    assert metric_scale("auc", classes=0) is not None


@pytest.mark.parametrize(
    ("name", "constant"),
    [("macro_f1", "f1_score"), ("mean_iou", "jaccard_score"), ("macro_recall", "recall_score")],
)
def test_no_constant_prediction_beats_guessing(name: str, constant: str) -> None:
    """Whatever the shares of the classes are; scikit-learn computes the metric."""
    labels = [0] * 7 + [1] * 2 + [2]
    scale = metric_scale(name, classes=3)
    assert scale is not None
    for one in range(3):
        value = getattr(reference, constant)(labels, [one] * 10, average="macro", zero_division=0)
        assert scale.gains([value])[0] < scale.least


def test_errors_gain_by_falling() -> None:
    scale = metric_scale("error_rate", classes=4)
    assert scale is not None
    assert scale.gains([0.75, 0.375, 0.0]) == pytest.approx([0, 0.5, 1])
    assert scale.gains([75.0, 37.5, 0.0]) == pytest.approx([0, 0.5, 1])


def test_shares_may_be_percentages() -> None:
    scale = metric_scale("accuracy", classes=10)
    perplexity = metric_scale("perplexity", classes=100)
    error = metric_scale("R2", classes=0)
    assert scale is not None
    assert perplexity is not None
    assert error is not None
    assert scale.gains([10.0, 55.0, 100.0]) == pytest.approx([0, 0.5, 1])
    assert scale.gains([0.1, 0.55, 1.0]) == pytest.approx([0, 0.5, 1])
    assert perplexity.gains([1000.0, 100.0, 10.0, 1.0]) == pytest.approx([-0.5, 0, 0.5, 1])
    assert error.gains([-56.0, 0.0]) == pytest.approx([-56, 0])


def findings(
    folder: Path,
    rule: Rule,
    metrics: Callable[[Tensor, Tensor], dict[str, float]],
    *,
    rate: float = 1e-2,
    shift: int = 0,
    by_hand: bool = False,
) -> list[Finding]:
    """Train on digits, report metrics of the evaluation rows, and judge the run by one rule.

    Args:
        folder: directory of the run.
        rule: the rule.
        metrics: metrics of outputs [rows, 10] and labels [rows].
        rate: learning rate of Adam.
        shift: shift of the classes of the evaluation rows.
        by_hand: the loss is a formula of the script that the hook does not see as a loss of labels.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = digits()
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    rows = batches(len(data.x), 64)
    with Hook(folder, collections=capture_for([rule]).collections, total_steps=300) as hook:
        hook.watch(model, optimizer=optimizer)
        loss = functional.cross_entropy if by_hand else hook.loss(functional.cross_entropy)
        for step in range(300):
            chosen = next(rows)
            optimizer.zero_grad()
            value = loss(model(data.x[chosen]), data.y[chosen])
            value.backward()
            optimizer.step()
            if by_hand:
                hook.save("losses/mine", value)
            if step % 50 == 49:
                with hook.mode("eval"), torch.no_grad():
                    truth = (data.y_eval + shift) % 10
                    for name, one in metrics(model(data.x_eval), truth).items():
                        hook.metric(name, one)
    return [one for one in judge(open_run(folder), [rule]) if one.statistic]


def accuracy(outputs: Tensor, truth: Tensor) -> dict[str, float]:
    return {"val_acc": 100 * (outputs.argmax(1) == truth).float().mean().item()}


def explained(outputs: Tensor, truth: Tensor) -> dict[str, float]:
    error = (outputs.argmax(1) - truth).float().square().mean()
    return {"R2": (1 - error / truth.float().var()).item()}


def worthless(outputs: Tensor, truth: Tensor) -> dict[str, float]:
    return {name: value - 57 for name, value in explained(outputs, truth).items()}


@pytest.mark.thorough
def test_a_metric_at_its_guessing_level_makes_the_outcome_poor(tmp_path: Path) -> None:
    (of_labels,) = findings(tmp_path / "labels", Underfitting(), accuracy, rate=1e-9)
    assert "where guessing gives 0.1" in of_labels.seen
    # The loss falls, and no labels are known.
    (finding,) = findings(tmp_path / "mine", Underfitting(), worthless, by_hand=True)
    assert (finding.tensor, finding.threshold) == ("metrics/R2", 0.0)
    assert finding.value < -50
    assert finding.seen.startswith("R2 is -5")


@pytest.mark.thorough
@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("metrics", [accuracy, explained])
def test_a_good_metric_raises_no_alarm(
    metrics: Callable[[Tensor, Tensor], dict[str, float]], by_hand: bool, tmp_path: Path
) -> None:
    assert findings(tmp_path / "run", Underfitting(), metrics, by_hand=by_hand) == []


def test_a_metric_with_another_meaning_says_nothing(tmp_path: Path) -> None:
    def of_a_class(outputs: Tensor, truth: Tensor) -> dict[str, float]:
        return {"accuracy_class_3": 0.0, "distance": 0.0}

    assert findings(tmp_path / "run", Underfitting(), of_a_class) == []


@pytest.mark.thorough
def test_classes_in_another_order_in_the_evaluation_are_found(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path / "shifted", CorruptLabels(), accuracy, shift=1)
    assert (finding.severity, finding.tensor) == ("warning", "metrics/val_acc")
    assert "classes in another order" in finding.cause
    assert findings(tmp_path / "right", CorruptLabels(), accuracy) == []
