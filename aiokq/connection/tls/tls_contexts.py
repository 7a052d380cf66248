"""`TlsContexts`: the current SSL context of a client or listener, made again when files change.

Open connections keep their context; new connections get the current one. So a renewed certificate
needs no restart, and open connections stay open.

Tests: tests/unit/connection/tls/test_tls_contexts.py.
"""

from __future__ import annotations

import errno
import logging
import os
import ssl
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiokq.connection.tls.certificate import Certificate
from aiokq.connection.tls.contexts import Made
from aiokq.connection.tls.stores import KeyMaterial, read_trust_store
from aiokq.connection.tls.tls_settings import TlsSettings
from aiokq.core.errors import ConfigError
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.core.clock import Clock
    from aiokq.core.offload import Offload

__all__ = ["ChangedStores", "TlsContexts"]

logger = logging.getLogger("aiokq.connection")

CHECK_SECONDS: Final = 4.0
"""Seconds between two checks whether files of keys and certificates have changed."""

SETTLED_SECONDS: Final = 1.0
"""Seconds for which changed files must stay as they are before they are read.

Without this wait, a half-written trust store could be read: its first certificates alone look like
a complete store.
"""

_PASSING_ERRORS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO))
"""Errors of reading a file that say nothing of the file, such as too many open files."""

WARN_SECONDS: Final = 14 * 24 * 3600
"""From this many seconds before a certificate expires, a warning is logged once a day."""

_DAY: Final = 24 * 3600

_State = tuple[tuple[int, int, int] | None, ...]


class ChangedStores(NamedTuple):
    """A context made from changed settings that are not in use yet.

    Attributes:
        settings: the settings.
        files: the files that they name.
        seen: the state of the files before they were read.
        made: the context and its key material.
        own: the certificate of this end; None if there is none.
    """

    settings: TlsSettings
    files: tuple[str, ...]
    seen: _State
    made: Made
    own: Certificate | None


class TlsContexts:
    """The current SSL context of one end.

    Args:
        make: makes a context from the settings: `client_context` or `server_context`.
        settings: stores and rules.
        name: the owner of the context in logs, such as "listener SSL".

    Attributes:
        context: the context of new connections.
        check_seconds: least number of seconds between two checks of the files, except while changed
            files may not be complete yet.

    Raises:
        ConfigError: a setting is not valid, or a file cannot be used.
    """

    def __init__(
        self,
        make: Callable[[TlsSettings], Made],
        settings: TlsSettings | None,
        name: str,
        *,
        fixed: ssl.SSLContext | None = None,
    ) -> None:
        self.check_seconds = CHECK_SECONDS
        self._make = make
        self._settings = settings
        self._name = name
        self._lock = threading.Lock()
        self._reads = 0  # number of times that files were read, or stores changed
        self._newest = 0  # the number of the read from which the context was made
        self._files: tuple[str, ...] = ()
        self._seen: _State = ()
        self._changed: _State = ()  # the state of changed files that are not read yet
        self._check_at = float("-inf")
        self._warned_on: int | None = None
        self._own: Certificate | None = None
        if settings is None:
            assert fixed is not None
            self.context = fixed
            return
        self._files = _files_of(settings)
        self._seen = _look(self._files)
        made = make(settings)
        self.context = made.context
        self._own = _own(made.material)

    @classmethod
    def fixed(cls, context: ssl.SSLContext) -> TlsContexts:
        """Return a `TlsContexts` that always returns the given context."""
        return cls(_never, None, "", fixed=context)

    @property
    def expires_at(self) -> int | None:
        """The end of the own certificate's validity in seconds since 1970-01-01 UTC.

        None if there is no own certificate, or if the context was given.
        """
        return None if self._own is None else self._own.not_after

    @property
    def files(self) -> tuple[str, ...]:
        """The files whose changes lead to a new context."""
        return self._files

    async def current(self, clock: Clock, offload: Offload | None) -> ssl.SSLContext:
        """Return the context of a new connection; check the files every `check_seconds`.

        Changed files are read when they have stayed as they are for `SETTLED_SECONDS`.

        Args:
            offload: reads changed files outside the loop; None to read them on the loop.
        """
        now = clock.monotonic()
        if now >= self._check_at:
            self._check_at = now + self.check_seconds
            found = _look(self._files)
            if found != self._seen:
                if not self._is_settled(found, clock.timestamp_ms()):
                    self._changed = found
                    self._check_at = now + min(SETTLED_SECONDS, self.check_seconds)
                elif offload is None:
                    self.renew()
                else:
                    await offload.run(self.renew)
            self.check_expiry(clock.timestamp_ms() // 1000)
        return self.context

    def pause(self, clock: Clock) -> float:
        """Return the seconds until `current` checks the files again."""
        return max(self._check_at - clock.monotonic(), 0.0)

    def _is_settled(self, found: _State, now_ms: int) -> bool:
        """Return whether changed files have not changed again for some time.

        This is so if two checks found the same state, or if all files were modified more than
        `SETTLED_SECONDS` ago. If such old files needed a second check, too, a client that seldom
        connects would use its old certificate once more.
        """
        latest_ns = (now_ms - int(SETTLED_SECONDS * 1000)) * 1_000_000
        return found == self._changed or all(
            each is not None and each[0] <= latest_ns for each in found
        )

    def renew(self) -> bool:
        """If a file has changed, make a new context; keep the old one if that fails.

        Context: any thread; reads files.

        Returns:
            whether there is a new context.
        """
        with self._lock:  # not held while files are read, because `change` runs on the loop
            seen = _look(self._files)
            if seen == self._seen:
                return False
            # The next check notices a change that happens while the files are read.
            self._seen = seen
            settings = self._settings
            self._reads += 1
            number = self._reads
        assert settings is not None
        try:
            made = self._make(settings)
            own = _own(made.material)
            self._check_identity(settings, own)
        except ConfigError as error:
            logger.warning(
                "changed TLS files not taken up, the former ones stay in use: %s: %s",
                self._name,
                error.message,
            )
            with self._lock:
                if _may_pass(error) and number == self._reads:
                    self._seen = ()  # read the files again at the next check
            return False
        with self._lock:
            if number < self._newest:
                return False  # newer files or other stores are in use meanwhile
            self._newest = number
            self.context = made.context
            self._own = own
            self._warned_on = None
        logger.info("changed TLS files taken up: %s: %s", self._name, ", ".join(self._files))
        return True

    def prepare(self, settings: TlsSettings) -> ChangedStores:
        """Make a context from changed stores, without using it.

        Context: any thread; reads files.

        Raises:
            ConfigError: a setting is not valid, a file cannot be used, the certificate has another
                identity, the settings add a first trust store, or the context was given.
        """
        if self._settings is None:
            raise settings.error(
                "ssl.keystore.location", "the listener has a context that was given as ssl_context"
            )
        if self._settings.has_truststore < settings.has_truststore:
            raise settings.error(
                "ssl.truststore.location",
                "Cannot add SSL truststore to an existing listener for which no truststore was "
                "configured.",
            )
        files = _files_of(settings)
        seen = _look(files)
        made = self._make(settings)
        # A check: `_make` does not read the trust store if the listener asks for no certificates.
        read_trust_store(settings)
        own = _own(made.material)
        self._check_identity(settings, own)
        return ChangedStores(settings, files, seen, made, own)

    def change(self, stores: ChangedStores) -> None:
        """Use a prepared context for new connections; open connections keep theirs."""
        with self._lock:
            self._reads += 1
            self._newest = self._reads
            self._settings, self._files, self._seen = stores.settings, stores.files, stores.seen
            self.context = stores.made.context
            self._own = stores.own
            self._warned_on = None
        logger.info("changed TLS settings taken up: %s", self._name)

    def check_expiry(self, now: int) -> None:
        """Once a day, log a warning if the own certificate expires within 14 days.

        If it has expired, an error is logged instead.

        Args:
            now: seconds since 1970-01-01 UTC.
        """
        expires_at = self.expires_at
        if expires_at is None:
            return
        left = expires_at - now
        if left > WARN_SECONDS or self._warned_on == now // _DAY:
            return
        self._warned_on = now // _DAY
        if left > 0:
            days = left // _DAY
            logger.warning("certificate expires in %d days: %s", days, self._name)
        else:
            logger.error("certificate has expired: %s", self._name)

    def _check_identity(self, settings: TlsSettings, own: Certificate | None) -> None:
        """Refuse a new certificate whose identity differs, as Kafka does for a listener.

        Raises:
            ConfigError: the distinguished name differs, or a former alternative name is missing.
        """
        former = self._own
        if not settings.keeps_identity or own is None or former is None:
            return
        if own.subject != former.subject and not settings.allow_dn_changes:
            raise settings.error(
                "ssl.keystore.location",
                f"the new certificate is of {own.name!r}, the former one of {former.name!r}; "
                f"{settings.spelled('ssl.allow.dn.changes')}=true allows it",
            )
        if not own.alternative_names >= former.alternative_names and not settings.allow_san_changes:
            raise settings.error(
                "ssl.keystore.location",
                "the new certificate lacks an alternative name of the former one; "
                f"{settings.spelled('ssl.allow.san.changes')}=true allows it",
            )


def _own(material: KeyMaterial | None) -> Certificate | None:
    return None if material is None else Certificate.of(material.certificates[0])


def _files_of(settings: TlsSettings) -> tuple[str, ...]:
    paths = settings.keystore_location, settings.key_location, settings.truststore_location
    return tuple(path for path in paths if path is not None)


def _look(files: tuple[str, ...]) -> _State:
    return tuple(map(_state, files))


def _state(path: str) -> tuple[int, int, int] | None:
    """Return modification time, size and inode of a file; None if there is no file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # there is no file, or the text cannot be a path
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _may_pass(error: ConfigError) -> bool:
    """Return whether the files may be usable, although they could not be read."""
    cause = error.__cause__
    return (
        isinstance(cause, OSError)
        and not isinstance(cause, ssl.SSLError)
        and cause.errno in _PASSING_ERRORS
    )


def _never(settings: TlsSettings) -> Made:
    raise AssertionError("a fixed context is not made")
