"""`aiokq broker` as a process of its own, with access to the logs it wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiokq.records.header import BatchHeader, iter_headers


class BrokerProcess:
    """A running broker: its address, its process, its data directory."""

    def __init__(self, data_dir: Path, *arguments: str, port: int = 0) -> None:
        self.data_dir = data_dir
        self.arguments = arguments
        self.port = port
        self.info: dict[str, object] = {}
        self.process: subprocess.Popen[str] | None = None

    @property
    def bootstrap_servers(self) -> str:
        return str(self.info["bootstrap_servers"])

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "aiokq", "broker", "--json"),
                *("--port", str(self.port), "--data-dir", str(self.data_dir)),
                *("--profile", "kafka"),  # the last --profile is used
                *self.arguments,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.stdout.close()
            raise RuntimeError(f"the broker did not start: exit code {self.process.wait()}")
        self.info = json.loads(line)

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        """Stop the broker; return its exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            return self.process.wait(20)
        finally:
            if self.process.poll() is None:
                os.kill(self.process.pid, signal.SIGKILL)
                self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()

    def batches(self, topic: str, partition: int = 0) -> list[BatchHeader]:
        """Return the headers of all batches in a partition's log."""
        directory = self.data_dir / f"{topic}-{partition}"
        return [
            header
            for path in sorted(directory.glob("*.log"))
            for header in iter_headers(path.read_bytes())
        ]


@contextmanager
def broker_process(data_dir: Path, *arguments: str) -> Iterator[BrokerProcess]:
    """Run a broker with these arguments while the block runs."""
    broker = BrokerProcess(data_dir, *arguments)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()
