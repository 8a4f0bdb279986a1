"""For people with their own images: a classifier to fit, teach and ask."""

from lcwof.app.classifier import FewShotClassifier, Prediction

__all__ = ["FewShotClassifier", "Prediction"]
