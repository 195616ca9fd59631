"""torchvision's ResNet-18 (He et al., arXiv:1512.03385), unchanged, from its package: the extra ``torchvision``.

Images 224x224, 1000 classes, random weights unless named.
11,689,512 parameters, 1,814,073,344 multiply-accumulates an image.
"""

from torch import nn


def build(classes: int = 1000, weights: str | None = None) -> nn.Module:
    """The network in float: standardized images (n, 3, 224, 224) to logits (n, classes).

    ``weights`` is a name that torchvision knows ("DEFAULT", "IMAGENET1K_V1"), downloaded by it; None: random.
    ``ImportError`` with the fix when torchvision is absent.
    """
    try:
        from torchvision.models import resnet18
    except ImportError as error:
        raise ImportError(
            f"torchvision cannot be imported ({error}); this model comes from it: pip install "
            "'hawq-flow[torchvision]', with the torchvision built for the torch installed here, or use "
            "models/resnet.py, the same network in plain torch"
        ) from error
    return resnet18(weights=weights, num_classes=classes)  # type: ignore[no-any-return]
