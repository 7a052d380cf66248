"""`TokenKeys`: the public keys of tokens, a JSON Web Key Set from a file or a URL.

Threads read and fetch the keys, never the event loop. While a fetch fails, the last keys stay in
use.

Source: RFC 7517; Kafka ``RefreshingHttpsJwks.java``, ``JwksFileVerificationKeyResolver.java``.
Tests: ``tests/unit/broker/security/authentication/test_token_keys.py``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

from aiokq.broker.security.authentication.key_source import LONGEST
from aiokq.core.errors import Closed
from aiokq.core.named_tuple import NamedTuple
from aiokq.core.user_errors import is_for_caller
from aiokq.core.warning_backoff import WarningBackoff

if TYPE_CHECKING:
    from aiokq.broker.security.authentication.key_source import KeySource
    from aiokq.core.clock import Clock
    from aiokq.core.offload import Offload

__all__ = ["TokenKey", "TokenKeys", "parse_key_set"]

logger = logging.getLogger("aiokq.broker")

SECONDS_BETWEEN_FETCHES: Final = 10.0
"""Minimum seconds between two fetches that tokens with unknown key ids cause.

Anybody can send tokens with invented key ids. Kafka fetches once a minute for each of 16 ids.
"""

SECONDS_OF_FILE: Final = 1.0
"""Minimum number of seconds between two checks of a file for changes."""

MAX_KEYS: Final = 1000
LEAST_RSA_BITS: Final = 2048
"""Length of the shortest RSA key (RFC 7518, section 3.3)."""

_CURVES: Final = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}


class TokenKey(NamedTuple):
    """A public key of an authorization server.

    Attributes:
        key_id: the id, which tokens name; None if the key has none.
        kind: the type of the key: RSA, EC or OKP.
        curve: the curve of the key; None for RSA.
        key: the key itself.
    """

    key_id: str | None
    kind: str
    curve: str | None
    key: Any


class TokenKeys:
    """The current keys, and their renewal.

    Args:
        source: the file or URL with the keys.
        refresh: seconds between two fetches.
        backoff: seconds from the first failure to the next attempt; they double with each failure.
        longest_backoff: largest number of seconds from a failure to the next attempt.
        clock: the broker's clock.
        offload: runs the fetches.
    """

    def __init__(
        self,
        source: KeySource,
        *,
        refresh: float,
        backoff: float,
        longest_backoff: float,
        clock: Clock,
        offload: Offload,
    ) -> None:
        self._source = source
        self._refresh = refresh
        self._backoff = max(backoff, 0.01)
        self._longest_backoff = max(longest_backoff, self._backoff)
        self._now = clock.monotonic
        self._offload = offload
        self._keys: tuple[TokenKey, ...] | None = None
        self._attempted_at = float("-inf")
        self._fetching: asyncio.Future[bool] | None = None
        self._spawn: Callable[[Coroutine[object, None, None], str], object] | None = None
        self._warnings = WarningBackoff(clock.monotonic)

    def start(self, spawn: Callable[[Coroutine[object, None, None], str], object]) -> None:
        """Begin to fetch the keys.

        Args:
            spawn: starts a task of the broker with a name.
        """
        self._spawn = spawn
        spawn(self._keep_fresh(), "keys of tokens")

    async def find(self, key_id: str | None, kind: str, curve: str | None) -> list[Any]:
        """Return the keys that a token may be signed with.

        Without a key id, these are all keys of the type. If no known key fits, or if the source is
        a file, the call first fetches the keys again, unless they were fetched a moment ago.
        """
        found = self._fitting(key_id, kind, curve)
        pause = SECONDS_OF_FILE if self._source.is_file else SECONDS_BETWEEN_FETCHES
        is_due = self._now() - self._attempted_at >= pause
        if self._fetching is not None:
            if not found:
                await asyncio.shield(self._fetching)
        elif is_due and (not found or self._source.is_file):
            await self._fetch_once()
        else:
            return found
        return self._fitting(key_id, kind, curve)

    def _fitting(self, key_id: str | None, kind: str, curve: str | None) -> list[Any]:
        return [
            one.key
            for one in self._keys or ()
            if one.kind == kind and one.curve == curve and (key_id is None or one.key_id == key_id)
        ]

    async def _keep_fresh(self) -> None:
        pause = self._backoff
        while True:
            if await self._fetch_once():
                pause = self._backoff
                await asyncio.sleep(self._refresh)
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, self._longest_backoff)

    async def _fetch_once(self) -> bool:
        """Fetch the keys, or wait for the fetch in progress; return whether it worked.

        A fetch runs in its own task, because a login is cancelled if its client disconnects. If the
        fetch were cancelled, too, other logins would wait some seconds for the next permitted
        fetch.
        """
        fetching = self._fetching
        if fetching is None:
            assert self._spawn is not None
            fetching = asyncio.get_running_loop().create_future()
            self._spawn(self._fetch(fetching), "fetch of the keys of tokens")
            self._fetching = fetching
            self._attempted_at = self._now()
        return await asyncio.shield(fetching)

    async def _fetch(self, fetching: asyncio.Future[bool]) -> None:
        worked = False
        try:
            text = await self._read()
            if text is not None:
                keys = await self._offload.run(parse_key_set, text)
                logger.info("keys of tokens read: source=%s keys=%d", self._source, len(keys))
                self._keys = keys
            self._warnings.over()
            worked = True
        except Closed:
            pass  # the broker is closing
        except BaseException as error:  # a server may answer anything, and `cryptography` may panic
            if is_for_caller(error):
                raise
            level, times = self._warnings.note("keys")
            logger.log(
                level,
                "keys of tokens cannot be read: source=%s error=%s times=%d; %s",
                self._source,
                error,
                times,
                "no client can log in with a token" if self._keys is None else "the last ones stay",
            )
        finally:
            self._fetching = None
            if not fetching.done():
                fetching.set_result(worked)

    async def _read(self) -> bytes | None:
        """Read the source, with a time limit so that a slow server does not keep logins waiting.

        A file has no time limit, because it is local. Also, an abandoned read would mark a change
        of the file as seen, although the new keys were lost.
        """
        try:
            async with asyncio.timeout(None if self._source.is_file else LONGEST) as limit:
                return await self._offload.run(self._source.read)
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"no complete answer within {LONGEST:g} s") from None
            raise


def parse_key_set(text: bytes) -> tuple[TokenKey, ...]:
    """Return the keys of a JSON Web Key Set that can verify the signatures of tokens.

    Keys for encryption, symmetric keys, malformed keys and keys that are too short are left out.

    Raises:
        ValueError: the text is not a key set, or has no such key.
    """
    try:
        entries = json.loads(text)["keys"]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise ValueError("it is not a JSON Web Key Set") from None
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise ValueError(f"it is not a list of at most {MAX_KEYS} keys")
    found = tuple(key for entry in entries if (key := _key(entry)) is not None)
    if not found:
        raise ValueError("it has no public key that can verify signatures")
    return found


def _key(entry: object) -> TokenKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    kind, key_id = entry.get("kty"), entry.get("kid")
    if key_id is not None and not isinstance(key_id, str):
        return None
    readers: dict[str, Any] = {"RSA": RSAAlgorithm, "EC": ECAlgorithm, "OKP": OKPAlgorithm}
    reader = readers.get(kind) if isinstance(kind, str) else None
    if reader is None:
        return None
    try:
        key: Any = reader.from_jwk(entry)
    except (PyJWTError, ValueError, TypeError, LookupError):
        return None
    if hasattr(key, "public_key"):  # a private key, which should not be in a key set
        key = key.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return TokenKey(key_id, "RSA", None, key) if key.key_size >= LEAST_RSA_BITS else None
    if isinstance(key, ec.EllipticCurvePublicKey):
        return TokenKey(key_id, "EC", _CURVES.get(key.curve.name), key)
    if isinstance(key, ed25519.Ed25519PublicKey):
        return TokenKey(key_id, "OKP", "Ed25519", key)
    return None
