"""The embedded broker as a process of its own, for as long as a `with` block lasts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def broker_process(*arguments: str) -> Iterator[str]:
    """Start `aiokq broker` on a free port, yield its bootstrap address, and stop it cleanly."""
    command = [sys.executable, "-m", "aiokq", "broker", "--json"]
    command += ["--port", "0", "--profile", "kafka", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"the broker did not start (exit code {process.wait()})")
        yield json.loads(line)["bootstrap_servers"]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
