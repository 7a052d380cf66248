"""A client in Go, by franz-go; `make go-client` builds it into .cache/go."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / ".cache" / "go" / "client"


def why_absent() -> str | None:
    """Return the reason why the client cannot be run here, None if it can."""
    if not PROGRAM.exists():
        return "no client of franz-go in .cache/go: run `make go-client` (it needs Go)"
    return None


def run_go_client(timeout: float = 60, **settings: object) -> None:
    """Log in, write and read one record.

    Args:
        settings: the fields of `settings` in main.go, such as `Server`.

    Raises:
        RuntimeError: the client failed; the text is its error.
    """
    done = subprocess.run(
        [str(PROGRAM)], input=json.dumps(settings), capture_output=True, text=True, timeout=timeout
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
