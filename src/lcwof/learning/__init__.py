"""The three phases, and the machinery that trains E learners as one tensor program.

Phase 1 makes a `BaseModel`; phases 2 and 3 adapt `Learners` started from it.
"""

from lcwof.learning.inputs import Inputs
from lcwof.learning.learners import Batch, Descent, Learners, descend
from lcwof.learning.losses import base_normalized_cross_entropy, cross_entropy, weight_constraint
from lcwof.learning.phase1 import Phase1
from lcwof.learning.phases import Distillation, Phase2, Phase3, calibrate, learn_novel, replayed
from lcwof.learning.pretrain import base_accuracy, pretrain
from lcwof.learning.scoring import Scoring, embed_plain, whitening_of
from lcwof.learning.tail import Tail

__all__ = [
    "Batch",
    "Descent",
    "Distillation",
    "Inputs",
    "Learners",
    "Phase1",
    "Phase2",
    "Phase3",
    "Scoring",
    "Tail",
    "base_accuracy",
    "base_normalized_cross_entropy",
    "calibrate",
    "cross_entropy",
    "descend",
    "embed_plain",
    "learn_novel",
    "pretrain",
    "replayed",
    "weight_constraint",
    "whitening_of",
]
