"""Where figures come from: the machine and the code."""

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch

from lcwof import __version__


def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type}, {os.cpu_count()} cores, {platform.machine()}"


def versions() -> dict[str, str]:
    """Of this package, its commit where there is one, and what it computes with."""
    found = {"lcwof": __version__, "commit": commit(), "torch": torch.__version__, "numpy": version("numpy")}
    return {name: number for name, number in found.items() if number}


@cache
def commit(package: Path = Path(__file__).parents[1]) -> str:
    """The commit of the checkout the package lies in, with a + where its files were changed since; empty where it lies
    in none. $LCWOF_COMMIT tells it where code travels without its history.
    """
    if told := os.environ.get("LCWOF_COMMIT"):
        return told

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(package), *words], capture_output=True, text=True, check=False)

    try:
        if git("ls-files", "--error-unmatch", "__init__.py").returncode:
            return ""  # no checkout, or somebody else's with this package installed inside
        head = git("rev-parse", "--short=7", "HEAD")
        return "" if head.returncode else head.stdout.strip() + "+" * bool(git("status", "--porcelain", ".").stdout)
    except OSError:  # no git
        return ""
