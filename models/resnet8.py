"""The image classifier of MLPerf Tiny (arXiv:2106.07597): ResNet-8 for 32x32 colour images.

He et al., arXiv:1512.03385: a 3x3 convolution, then three residual blocks of 16, 32 and 64 channels, the last two with
stride 2 and a 1x1 convolution on the shortcut; the mean over the map, 10 classes.
78,186 parameters, 12,501,632 multiply-accumulates an image.
"""

from torch import Tensor, nn


class Block(nn.Module):
    """``relu(conv(relu(conv(x))) + shortcut(x))`` with batch norm after the two convolutions of the branch."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride) if stride > 1 else nn.Identity()
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, outputs, h / stride, w / stride)."""
        branch = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        return self.relu(branch + self.shortcut(x))  # type: ignore[no-any-return]


class ResNet8(nn.Module):
    """Standardized images (n, 3, 32, 32) to logits (n, classes)."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.conv, self.norm, self.relu = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()
        self.block1 = Block(width, width, 1)
        self.block2 = Block(width, 2 * width, 2)
        self.block3 = Block(2 * width, 4 * width, 2)
        self.pool, self.flatten = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes)."""
        x = self.relu(self.norm(self.conv(x)))
        x = self.block3(self.block2(self.block1(x)))
        return self.head(self.flatten(self.pool(x)))  # type: ignore[no-any-return]


def build(width: int = 16, classes: int = 10) -> nn.Module:
    """The network in float, freshly initialized from torch's global generator."""
    return ResNet8(width, classes)
