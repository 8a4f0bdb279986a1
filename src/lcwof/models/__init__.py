"""Networks as a frozen trunk and an adaptive tail, and the files they are kept in.

A layer given weights with a leading dimension E acts as E layers, one a learner: that is all it takes to train many.
"""

from lcwof.models import efficientnet  # noqa: F401  (importing registers)
from lcwof.models.backbones import Backbone, Chain, backbone_names, build_backbone, pretrained, register_backbone
from lcwof.models.base import BaseModel
from lcwof.models.checkpoint import load_tensors, save_tensors

__all__ = [
    "Backbone",
    "BaseModel",
    "Chain",
    "backbone_names",
    "build_backbone",
    "load_tensors",
    "pretrained",
    "register_backbone",
    "save_tensors",
]
