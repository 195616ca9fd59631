"""A 1-D convolutional jet tagger over constituents in falling order of pT (as compared in arXiv:1908.05318).

Two convolutions of width 3 over neighbouring particles with batch norm, ReLU and pooling, then two dense layers.
4,685 parameters, 14,752 multiply-accumulates a jet of 16 particles.
"""

from torch import Tensor, nn


class JetCNN(nn.Module):
    """Standardized particles (n, features, particles) to logits (n, classes)."""

    def __init__(self, features: int, particles: int, channels: tuple[int, int], hidden: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(features, channels[0], 3, padding=1)
        self.norm1 = nn.BatchNorm1d(channels[0])
        self.conv2 = nn.Conv1d(channels[0], channels[1], 3, padding=1)
        self.norm2 = nn.BatchNorm1d(channels[1])
        self.pool1, self.pool2 = nn.MaxPool1d(2), nn.AvgPool1d(2)
        self.relu, self.flatten = nn.ReLU(), nn.Flatten()
        self.fc = nn.Linear(channels[1] * (particles // 4), hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes)."""
        x = self.pool1(self.relu(self.norm1(self.conv1(x))))
        x = self.pool2(self.relu(self.norm2(self.conv2(x))))
        return self.head(self.relu(self.fc(self.flatten(x))))  # type: ignore[no-any-return]


def build(
    features: int = 3, particles: int = 16, channels: tuple[int, int] = (16, 24), hidden: int = 32, classes: int = 5
) -> nn.Module:
    """The network in float, freshly initialized from torch's global generator; ``particles`` a multiple of 4."""
    return JetCNN(features, particles, channels, hidden, classes)
