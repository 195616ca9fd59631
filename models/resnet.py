"""ResNet-18 in plain torch (He et al., arXiv:1512.03385), for machines without torchvision: same layers, names, sizes.

A 7x7 convolution with stride 2 and 3x3 max pooling, four stages of two residual blocks with 64 to 512 channels, the
mean over the map, 1000 classes. Images 224x224.
11,689,512 parameters, 1,814,073,344 multiply-accumulates an image.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm, added to the (perhaps projected) input; one ReLU module serves both."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, outputs, h / stride, w / stride)."""
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """Standardized images (n, 3, h, w) to logits (n, classes)."""

    def __init__(self, blocks: Sequence[int], width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels, stages = width, []
        for stage, count in enumerate(blocks):
            outputs = width << stage
            stages.append(
                nn.Sequential(
                    BasicBlock(channels, outputs, 1 if stage == 0 else 2),
                    *(BasicBlock(outputs, outputs, 1) for _ in range(count - 1)),
                )
            )
            channels = outputs
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Logits (n, classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))  # type: ignore[no-any-return]


def build(blocks: Sequence[int] = (2, 2, 2, 2), width: int = 64, classes: int = 1000) -> nn.Module:
    """The network in float, freshly initialized; ``blocks`` residual blocks in each of the four stages."""
    return ResNet(blocks, width, classes)
