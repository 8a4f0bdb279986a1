"""Where episodes run: recipes in, run folders out."""

from lcwof.engine.recipe import Recipe, learners_at_once, pick_device, read_recipe
from lcwof.engine.run import Run, evaluate_run, find_runs, hardware

__all__ = ["Recipe", "Run", "evaluate_run", "find_runs", "hardware", "learners_at_once", "pick_device", "read_recipe"]
