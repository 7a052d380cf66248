"""SharedMemory: the buffers that all TLS connections of one event loop use in turn.

A TLS connection uses the buffers only while one of its methods runs. Before the method returns, it
empties the BIOs: it sends the bytes that OpenSSL has written, and removes the bytes that OpenSSL
has not read. OpenSSL keeps an incomplete record itself. So an idle connection holds no buffer, and
a thousand connections need no more buffers than one.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import weakref
from typing import Final

__all__ = ["RECEIVE_BYTES", "SharedMemory", "shared_memory"]

RECEIVE_BYTES: Final = 256 * 1024
"""Size of the buffer for received bytes; one read fills at most this buffer."""

_OWN_RECEIVE_BYTES: Final = 64 * 1024
"""Size of the buffer of one connection where connections cannot share a buffer."""


class SharedMemory:
    """The buffers that the TLS connections of one event loop use in turn.

    Attributes:
        incoming: the BIO that OpenSSL reads; empty unless a method of a connection runs.
        outgoing: the BIO that OpenSSL writes; empty unless a method of a connection runs.
    """

    __slots__ = ("_received", "incoming", "outgoing")

    def __init__(self) -> None:
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self._received: memoryview | None = None

    def receive_buffer(self) -> memoryview:
        """Return memory to receive into, valid until the loop receives for another connection."""
        if sys.platform == "win32":  # the proactor loop receives for several connections at once
            return memoryview(bytearray(_OWN_RECEIVE_BYTES))
        if self._received is None:
            self._received = memoryview(bytearray(RECEIVE_BYTES))
        return self._received


_of_loop: Final[weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, SharedMemory]] = (
    weakref.WeakKeyDictionary()
)


def shared_memory() -> SharedMemory:
    """Return the buffers of the running loop."""
    loop = asyncio.get_running_loop()
    memory = _of_loop.get(loop)
    if memory is None:
        memory = _of_loop[loop] = SharedMemory()
    return memory
