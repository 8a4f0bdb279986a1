"""Learn new classes from a few examples without forgetting the old ones, calibrated over both."""

__version__ = "0.1.0"

from lcwof.app import FewShotClassifier, Prediction
from lcwof.errors import LcwofError

__all__ = ["FewShotClassifier", "LcwofError", "Prediction", "__version__"]
