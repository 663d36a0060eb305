"""Scripts whose training is checked: a healthy one, and changes of it."""

from __future__ import annotations

__all__ = ["LANGUAGE", "LIGHTNING", "SCRIPT", "USUAL", "script"]

# {name} are replaced.
SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
labels = torch.arange(1797) % 10
# Each class is a prototype with noise.
images = torch.rand(10, 64)[labels] + 0.3 * torch.randn(1797, 64)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 32)
        self.norm = nn.BatchNorm1d(32)
        self.last = nn.Linear(32, 10)

    def forward(self, rows):
        hidden = self.norm(self.first(rows)).relu()
        {forward}
        return self.last(hidden)


model = Network()
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.{optimizer}
loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
{before}
try:
    for epoch in range(100):
        for rows, wanted in loader:
            {clear}
            {step}
            optimizer.step()
            print(loss.item())
finally:
    open("ended", "w").close()
"""
USUAL = {
    "forward": "pass",
    "optimizer": "SGD(model.parameters(), lr=0.1, momentum=0.9)",
    "before": "pass",
    "clear": "optimizer.zero_grad()",
    "step": "loss = loss_fn(model(rows), wanted); loss.backward()",
}

# {callbacks} is replaced.
LIGHTNING = """
import lightning
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
rows = torch.randn(512, 10)
callbacks = []
{callbacks}


class Network(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))

    def training_step(self, batch, _):
        loss = F.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


trainer = lightning.Trainer(
    max_epochs=5,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    callbacks=callbacks,
)
loader = DataLoader(TensorDataset(rows, (rows[:, 0] > 0).long()), batch_size=32, shuffle=True)
trainer.fit(Network(), loader)
"""


def script(**changes: str) -> str:
    """Return the script with changed lines."""
    text = SCRIPT
    for name, line in {**USUAL, **changes}.items():
        text = text.replace(f"{{{name}}}", line)
    return text


# {name} are replaced: whether the future is masked, the labels, and the arguments of the model,
# which computes the loss itself if it gets the labels.
LANGUAGE = """
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
texts = torch.randint(20, (256, 17))
texts[:, 1::2] = (3 * texts[:, :-1:2] + 1) % 20


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 32)
        self.places = nn.Parameter(0.1 * torch.randn(16, 32))
        self.queries = nn.Linear(32, 96)
        self.last = nn.Linear(32, 20)

    def forward(self, tokens, wanted=None):
        hidden = self.embedding(tokens) + self.places
        mask = torch.ones(16, 16).tril().bool() if {mask} else None
        mixed = F.scaled_dot_product_attention(*self.queries(hidden).chunk(3, -1), attn_mask=mask)
        scores = self.last(hidden + mixed)
        if wanted is None:
            return scores
        return scores, F.cross_entropy(scores.flatten(0, 1), wanted.flatten())


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    for rows in texts.split(32):
        inputs = rows[:, :-1]
        wanted = {targets}
        optimizer.zero_grad()
        result = model{arguments}
        scores, loss = result if isinstance(result, tuple) else (result, None)
        if loss is None:
            loss = F.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        loss.backward()
        optimizer.step()
"""
