"""Learn new classes from a few examples without forgetting the old ones, calibrated over both."""

__version__ = "0.1.0"
