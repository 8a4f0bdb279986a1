"""Learn new classes from a few examples without forgetting the old ones, calibrated over both."""

from typing import TYPE_CHECKING, Any

from lcwof.errors import LcwofError

if TYPE_CHECKING:
    from lcwof.app import FewShotClassifier, Prediction

__version__ = "0.1.0"

__all__ = ["FewShotClassifier", "LcwofError", "Prediction", "__version__"]


def __getattr__(name: str) -> Any:
    """The classifier comes with scikit-learn, which takes a second to import: only when it is asked for."""
    if name in ("FewShotClassifier", "Prediction"):
        from lcwof import app

        return getattr(app, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
