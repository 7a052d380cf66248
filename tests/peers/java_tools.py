"""Kafka's command-line tools in a JVM that stays, because a JVM takes seconds to start."""

from __future__ import annotations

import atexit
import os
import struct
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

from tests.peers.java_command import java_command

__all__ = ["run_tool"]

SOURCE = Path(__file__).parent / "JavaTools.java"
ALONE = ("VerifiableProducer", "VerifiableConsumer", "ReplicaVerificationTool")
"""Tools that do the last of their work when their JVM ends."""

_idle: list[_Jvm] = []
_lock = threading.Lock()


def run_tool(
    main_class: str,
    *arguments: str,
    timeout: float | None = None,
    stdin: str | None = None,
    jars: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command-line tool of Kafka to its end (`org.apache.kafka.tools.` may be left out).

    It runs in a JVM that has run other tools before, or in one of its own if it needs more `jars`
    or is one of `ALONE`.
    """
    if "." not in main_class or main_class.startswith(("consumer.", "reassign.")):
        main_class = f"org.apache.kafka.tools.{main_class}"
    if jars is not None or main_class.endswith(ALONE):
        command = java_command(main_class, *arguments, jars=jars)
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, input=stdin)
    jvm = _take()
    words = (main_class, *arguments)
    limit = threading.Timer(timeout or 0, jvm.kill)
    if timeout is not None:
        limit.start()
    try:
        done = jvm.run(words, stdin or "")
    except BaseException as error:
        jvm.kill()
        jvm.wait()
        if isinstance(error, EOFError) and timeout is not None:
            raise subprocess.TimeoutExpired(words, timeout) from None
        raise
    finally:
        limit.cancel()
    with _lock:
        _idle.append(jvm)
    return done


class _Surroundings(NamedTuple):
    """What a JVM has from the process that started it."""

    process: int
    directory: str
    environment: dict[str, str]

    @classmethod
    def now(cls) -> _Surroundings:
        environment = {**os.environ}
        environment.pop("PYTEST_CURRENT_TEST", None)
        return cls(os.getpid(), os.getcwd(), environment)


class _Jvm:
    """A JVM that runs tools one after another; it ends with the process that started it."""

    def __init__(self, surroundings: _Surroundings) -> None:
        self.surroundings = surroundings
        self._process = subprocess.Popen(
            java_command(str(SOURCE)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def run(self, words: tuple[str, ...], stdin: str) -> subprocess.CompletedProcess[str]:
        asked = self._process.stdin
        assert asked is not None
        texts = [text.encode() for text in (*words, stdin)]
        asked.write(struct.pack(">i", len(words)))
        asked.write(b"".join(struct.pack(">i", len(text)) + text for text in texts))
        asked.flush()
        code = self._number()
        return subprocess.CompletedProcess(words, code, self._text(), self._text())

    def _number(self) -> int:
        (number,) = struct.unpack(">i", self._bytes(4))
        assert isinstance(number, int)
        return number

    def _text(self) -> str:
        return self._bytes(self._number()).decode()

    def _bytes(self, count: int) -> bytes:
        assert self._process.stdout is not None
        found = self._process.stdout.read(count)
        if len(found) < count:
            raise EOFError("the JVM of Kafka's tools ended")
        return found

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@atexit.register
def _end() -> None:
    own = [jvm for jvm in _idle if jvm.surroundings.process == os.getpid()]
    for jvm in own:
        jvm.kill()
    for jvm in own:
        jvm.wait()


def _take() -> _Jvm:
    """Return an idle JVM with the surroundings of this moment, or a new one."""
    now = _Surroundings.now()
    with _lock:
        for jvm in _idle:
            if jvm.surroundings == now:
                _idle.remove(jvm)
                return jvm
    return _Jvm(now)
