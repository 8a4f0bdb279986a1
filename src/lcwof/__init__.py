"""Learn new classes from a few examples without forgetting the old ones, calibrated over both."""

import os
from pathlib import Path
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


def _share_cores(loads: Path = Path("/proc/loadavg")) -> None:
    """Threads of torch spin while they wait for each other, which is a quarter faster where all cores are ours, and ten
    times slower where something else has one: there they rather sleep. Said to OpenMP before torch is imported."""
    try:
        running = int(loads.read_text().split()[3].partition("/")[0])  # us included
    except (OSError, LookupError, ValueError):  # not Linux
        return
    if running > 1:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


_share_cores()
