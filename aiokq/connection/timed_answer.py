"""`TimedAnswer`: an HTTP response with a time limit for the whole of it.

Tests: ``tests/unit/broker/security/authentication/test_key_source.py``,
``tests/unit/connection/sasl/test_token_endpoint.py``.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any

__all__ = ["TimedAnswer"]


class TimedAnswer(http.client.HTTPResponse):
    """A response whose reads fail at a given time after the request.

    A socket's own timeout begins again with each byte, so a slow server could go on sending the
    header for hours.

    Args:
        silence: seconds without a byte after which a read fails.
        longest: seconds after which reads fail in any case.
    """

    def __init__(
        self, silence: float, longest: float, sock: socket.socket, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(sock, *args, **kwargs)
        stream: Any = self.fp
        self.fp: Any = io.BufferedReader(_Reads(sock, stream.detach(), silence, longest))


class _Reads(io.RawIOBase):
    def __init__(
        self, connection: socket.socket, stream: io.RawIOBase, silence: float, longest: float
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._silence = silence
        self._longest = longest
        self._deadline = time.monotonic() + longest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"the answer takes more than {self._longest:g} s")
        self._connection.settimeout(min(self._silence, left))
        return self._stream.readinto(buffer)

    def close(self) -> None:
        self._stream.close()
        super().close()
