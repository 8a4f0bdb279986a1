"""Where episodes run: recipes in, run folders out."""

from lcwof.engine.choose import choose, choose_stream, write_choice
from lcwof.engine.origin import hardware
from lcwof.engine.recipe import Recipe, learners_at_once, pick_device, read_recipe
from lcwof.engine.run import Run, evaluate_run, find_runs
from lcwof.engine.stream import StreamRun, read_run, stream_run
from lcwof.engine.study import Entry, Study

__all__ = [
    "Entry",
    "Recipe",
    "Run",
    "StreamRun",
    "Study",
    "choose",
    "choose_stream",
    "evaluate_run",
    "find_runs",
    "hardware",
    "learners_at_once",
    "pick_device",
    "read_recipe",
    "read_run",
    "stream_run",
    "write_choice",
]
