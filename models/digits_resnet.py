"""A small residual network (He et al., arXiv:1512.03385) for 8x8 digits: one block behind one convolution.

1,626 parameters, 23,360 multiply-accumulates an image.
"""

from torch import Tensor, nn


class DigitsResNet(nn.Module):
    """Standardized images (n, 1, 8, 8) to logits (n, classes)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.conv1, self.norm1 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.relu, self.pool, self.mean, self.flatten = nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten()
        self.head = nn.Linear(4 * channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes)."""
        x = self.pool(self.relu(self.norm(self.conv(x))))
        branch = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        return self.head(self.flatten(self.mean(self.relu(branch + x))))  # type: ignore[no-any-return]


def build(channels: int = 8, classes: int = 10) -> nn.Module:
    """The network in float, freshly initialized from torch's global generator."""
    return DigitsResNet(channels, classes)
