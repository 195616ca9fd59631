"""A convolutional classifier of 8x8 digits after LeNet-5 (LeCun et al., Proc. IEEE 86, 1998), in its smallest form.

Two 3x3 convolutions with ReLU and 2x2 max pooling, then two dense layers.
3,350 parameters, 19,648 multiply-accumulates an image.
"""

from torch import Tensor, nn


class DigitsCNN(nn.Module):
    """Standardized images (n, 1, 8, 8) to logits (n, classes)."""

    def __init__(self, channels: tuple[int, int], hidden: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, channels[0], 3, padding=1)
        self.conv2 = nn.Conv2d(channels[0], channels[1], 3, padding=1)
        self.relu, self.pool, self.flatten = nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
        self.fc = nn.Linear(4 * channels[1], hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes)."""
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        return self.head(self.relu(self.fc(self.flatten(x))))  # type: ignore[no-any-return]


def build(channels: tuple[int, int] = (6, 16), hidden: int = 32, classes: int = 10) -> nn.Module:
    """The network in float, freshly initialized from torch's global generator."""
    return DigitsCNN(channels, hidden, classes)
