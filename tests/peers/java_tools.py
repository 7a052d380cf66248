"""Kafka's command-line tools in one JVM that stays, because a JVM takes seconds to start."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.peers.apache_kafka import java_command

__all__ = ["JavaTools", "ToolOutput", "java_tools"]

SOURCE = Path(__file__).parent / "JavaTools.java"


class ToolOutput(NamedTuple):
    """The exit code of a tool, and the lines of its output and errors."""

    code: int
    lines: list[str]


class JavaTools:
    """A JVM that runs tools one after another.

    Args:
        bootstrap: "host:port" that every tool gets as `--bootstrap-server`.
    """

    def __init__(self, process: subprocess.Popen[str], bootstrap: str) -> None:
        self._process = process
        self._bootstrap = bootstrap

    def run(self, main_class: str, *arguments: str) -> ToolOutput:
        """Run a tool to its end (`org.apache.kafka.tools.` may be left out)."""
        if "." not in main_class:
            main_class = f"org.apache.kafka.tools.{main_class}"
        words = (main_class, "--bootstrap-server", self._bootstrap, *arguments)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("\t".join(words) + "\n")
        stdin.flush()
        lines: list[str] = []
        for line in stdout:
            if line.startswith("exit "):
                return ToolOutput(int(line.split()[1]), lines)
            lines.append(line.rstrip("\n"))
        raise AssertionError(f"the JVM ended: {lines}")

    def output(self, main_class: str, *arguments: str) -> list[str]:
        """Run a tool that must succeed; return its lines."""
        done = self.run(main_class, *arguments)
        assert done.code == 0, done
        return done.lines


@contextmanager
def java_tools(bootstrap: str) -> Iterator[JavaTools]:
    process = subprocess.Popen(
        java_command(str(SOURCE)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield JavaTools(process, bootstrap)
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
