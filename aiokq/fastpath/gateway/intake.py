"""Intake: an input of the gateway, which reads a socket in a thread without Python's lock.

This is the compiled form: the work is in intake.h. Uncompiled, the module has the class of
pure_intake.py.
Tests: tests/unit/fastpath/test_gateway_intake.py, test_gateway_fuzz.py.
"""

# Hot path, measured by benchmarks/micro/gateway.py. Nothing in this file runs once per message.

from __future__ import annotations

import os

try:
    from aiokq.fastpath import cython_names as cython
except ImportError:  # never raised: `import cython` is only for the Cython compiler
    import cython

from aiokq.fastpath.gateway import values
from aiokq.fastpath.gateway.values import TRANSPORTS, IntakeCounts, check_intake_options

if cython.compiled:
    from cython.cimports.aiokq.fastpath.gateway._pool import Pool
    from cython.cimports.aiokq.fastpath.gateway._spool import SpoolWriter
    from cython.cimports.aiokq.fastpath.gateway.intake import (
        aiokq_intake,
        aiokq_intake_change,
        aiokq_intake_counts,
        aiokq_intake_start,
        aiokq_intake_stop,
        aiokq_watch_forks,
    )
    from cython.cimports.aiokq.fastpath.gateway.pool import aiokq_pool_lock, aiokq_pool_unlock
    from cython.cimports.aiokq.fastpath.native import AIOKQ_SOURCE_HASH
    from cython.cimports.libc.stdint import int64_t, uint32_t
    from cython.cimports.libc.stdlib import calloc, free, malloc
    from cython.cimports.posix.unistd import getpid

__all__ = ["Intake"]


# Without no_gc, the collector's tp_clear would free the pool before the thread of the input is
# stopped. An input needs no collector, because it is part of no reference cycle.
@cython.no_gc
@cython.final
@cython.cclass
class Intake:
    """Receives messages from a socket into a pool, in a thread of its own.

    Args:
        pool: the pool.
        fd: a bound datagram socket, or a listening stream socket; the caller owns it, and must keep
            it open until `stop()` has returned.
        transport: "unix_datagram", "unix_stream" or "tcp".
        max_message_bytes: largest size of a message; on streams, without the 4-byte size field.
        when_full: the reaction to a message for which the pool has no room: "discard" counts it as
            NO_MEMORY, "block" stops reading.
        allowed_uids: ids of the users that may send, according to the kernel's credentials; None
            for all users.
        max_connections: maximum number of open connections; further connections wait, with their
            data, in the kernel's queue until one is closed.
        idle_ms: milliseconds without data after which a connection is closed; 0 for never.
        idle_when_full_ms: idle time in milliseconds from which a connection may be closed so that
            another connection gets its place or descriptor; of the connections without an
            incomplete or unread message, the one idle longest is closed. 0 for never.
        partial_ms: age of an incomplete message, in milliseconds, at which its connection is
            closed. 0 for never, except if a blocking input waits for the end of the message: then
            the limit is 30 seconds.
        spool: a SpoolWriter, to which well-formed messages go, not to the pool; `when_full` then
            applies to messages that the spool does not accept.

    Raises:
        ValueError: an argument is out of range, or `allowed_uids` is given for TCP.
    """

    def __init__(
        self,
        pool: Pool,
        fd,
        transport,
        *,
        max_message_bytes=65536,
        when_full="discard",
        allowed_uids=None,
        max_connections=1024,
        idle_ms=0,
        partial_ms=0,
        idle_when_full_ms=0,
        spool: SpoolWriter = None,
    ):
        if self.intake != cython.NULL:
            raise RuntimeError("the input is already initialized")
        if pool is None:
            raise TypeError("an input needs a pool")
        if transport not in TRANSPORTS[:3]:
            raise ValueError(f"transport {transport!r}: one of {', '.join(TRANSPORTS[:3])}")
        check_intake_options(
            max_message_bytes, when_full, max_connections, idle_ms, partial_ms, idle_when_full_ms
        )
        if transport == "tcp" and allowed_uids is not None:
            raise ValueError("the kernel does not know the user of a TCP connection")
        n: cython.Py_ssize_t
        users = sorted(allowed_uids or ())
        pool._check_open()
        intake: cython.pointer(aiokq_intake) = cython.cast(
            cython.pointer(aiokq_intake), calloc(1, cython.sizeof(aiokq_intake))
        )
        if intake == cython.NULL:
            raise MemoryError
        self.intake = intake
        self.pid = getpid()
        self.pool = pool
        intake.pool = pool.pool
        if spool is not None:
            spool._check()
            self.spool = spool
            intake.spool = spool.spool
        intake.fd = fd
        intake.transport = TRANSPORTS.index(transport)
        intake.limit = max_message_bytes
        intake.block = when_full == "block"
        intake.max_connections = max_connections
        intake.idle_ms = idle_ms
        intake.partial_ms = partial_ms
        intake.idle_when_full_ms = idle_when_full_ms
        if allowed_uids is not None:
            intake.checks_users = 1
            intake.users = cython.cast(
                cython.pointer(uint32_t), malloc(len(users) * cython.sizeof(uint32_t) + 1)
            )
            if intake.users == cython.NULL:
                raise MemoryError
            for n in range(len(users)):
                intake.users[n] = users[n]
            intake.user_count = len(users)

    def __dealloc__(self):
        # A forked child has no thread to stop, and leaves the memory alone.
        if self.intake != cython.NULL and getpid() == self.pid:
            aiokq_intake_stop(self.intake, 0)
            free(self.intake.users)
            free(self.intake)

    def start(self):
        """Start the thread.

        An error of the socket itself ends the thread, and is reported by `counts()`.

        Raises:
            OSError: the system has no thread or no descriptor for the input.
            RuntimeError: the input was started before.
        """
        if self.started or getpid() != self.pid:
            raise RuntimeError("the input was started before")
        self.pool._check_open()
        error: cython.int = aiokq_intake_start(self.intake)
        if error:
            raise OSError(error, os.strerror(error))
        self.started = True

    def change(
        self,
        *,
        max_message_bytes=65536,
        when_full="discard",
        max_connections=1024,
        idle_ms=0,
        partial_ms=0,
        idle_when_full_ms=0,
    ):
        """Change options while the input runs. Connections stay open, and no message is lost.

        Raises:
            OSError: the system has no thread or no descriptor for the input, or the socket of the
                input was closed. The input is then stopped, and its connections are closed.
            RuntimeError: the input does not run.
            ValueError: an option is out of range.
        """
        check_intake_options(
            max_message_bytes, when_full, max_connections, idle_ms, partial_ms, idle_when_full_ms
        )
        if not self.started or getpid() != self.pid:
            raise RuntimeError("the input does not run")
        other = cython.declare(aiokq_intake)
        other.limit = max_message_bytes
        other.block = when_full == "block"
        other.max_connections = max_connections
        other.idle_ms = idle_ms
        other.partial_ms = partial_ms
        other.idle_when_full_ms = idle_when_full_ms
        error: cython.int
        with cython.nogil:
            error = aiokq_intake_change(self.intake, cython.address(other))
        if error < 0:
            raise RuntimeError("the input does not run")
        if error:
            raise OSError(error, os.strerror(error))

    def stop(self, *, drain_ms=0):
        """Stop the thread and wait for its end. All messages that it has read are stored.

        An input that waits for memory stores the messages that it has read, even without room. A
        second call waits for the end of the first; its `drain_ms`, unless it is 0, may shorten the
        time of the first. A call in a forked child does nothing.

        Args:
            drain_ms: the longest time in milliseconds for which the data in the kernel's buffers is
                read first; 0 to read nothing. The second half of it is only for the last read of
                connections whose programs write all the time. A blocking input without room waits
                for room in the first half, except before the first burst of datagrams.
        """
        if not self.started or getpid() != self.pid:
            return
        limit: int64_t = drain_ms
        with cython.nogil:
            aiokq_intake_stop(self.intake, limit)

    def counts(self):
        """Return one snapshot of the counts of this input."""
        if self.intake == cython.NULL:
            raise RuntimeError("the input is not initialized")
        counts = cython.declare(aiokq_intake_counts)
        ours: cython.bint = getpid() == self.pid
        if ours:
            aiokq_pool_lock(self.pool.pool)
        counts = self.intake.counts
        if ours:
            aiokq_pool_unlock(self.pool.pool)
        return IntakeCounts(
            counts.received,
            counts.received_bytes,
            counts.reasons[values.MALFORMED],
            counts.reasons[values.API_KEY],
            counts.reasons[values.API_VERSION],
            counts.reasons[values.UNCLEAN_DISCONNECT],
            counts.reasons[values.NOT_ALLOWED],
            counts.reasons[values.NO_MEMORY],
            counts.connections,
            counts.accepted,
            counts.refused,
            counts.idle_closed,
            counts.partial_closed,
            counts.displaced,
            counts.blocked_ms,
            bool(counts.running),
            counts.error,
        )


# ---------------------------------------------------------------- module initialization

if cython.compiled:
    SOURCE_HASH: str = AIOKQ_SOURCE_HASH.decode()
    if aiokq_watch_forks():
        raise MemoryError
else:
    from aiokq.fastpath.gateway.pure_intake import Intake
