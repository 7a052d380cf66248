"""Sources of tokens that need no server: the user's provider, and a file.

Tests: ``tests/unit/connection/sasl/test_token_sources.py``.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiokq.connection.sasl.oauth_token import OAuthToken, TokenFunction, TokenProvider
from aiokq.connection.sasl.oauthbearer_messages import (
    OAuthMessageError,
    check_extensions,
    is_token,
)
from aiokq.core.errors import AuthenticationFailed, Closed, ConnectionLost, KafkaError
from aiokq.core.offload import NoThread
from aiokq.core.user_errors import INTERRUPTS, closed_here, is_for_caller, place_of

if TYPE_CHECKING:
    from aiokq.core.offload import Offload

__all__ = ["FileTokens", "ProvidedTokens", "checked_token", "read_secret_file"]

_FETCH_SECONDS: Final = 60.0
"""Time after which a coroutine of the user is cancelled."""

_MAX_FILE_BYTES: Final = 1 << 20

_SHOWN_FRAMES: Final = 3
"""Number of stack frames of the provider that an error shows."""


class ProvidedTokens:
    """Tokens from a function, coroutine function or object of the user.

    A coroutine that takes longer than a minute is cancelled. A function cannot be cancelled, so
    there is no second call while the first one runs.

    Args:
        provider: the setting `sasl_oauth_token_provider`.
        offload: runs functions that are not coroutine functions.
    """

    def __init__(self, provider: TokenFunction | TokenProvider, offload: Offload) -> None:
        self._function: Callable[[], Any] = (
            provider.token if isinstance(provider, TokenProvider) else provider
        )
        self._extensions: Callable[[], Mapping[str, str]] | None = getattr(
            provider, "extensions", None
        )
        self._offload = offload
        self._running: Future[Any] | None = None

    def __repr__(self) -> str:
        return "<ProvidedTokens>"

    async def fetch(self) -> OAuthToken:
        """Return a token of the provider.

        Raises:
            AuthenticationFailed: the provider raised an exception other than a KafkaError, or
                returned something that is not a token.
            ConnectionLost: the provider has not answered within a minute, or there is no thread
                for it.
            KafkaError: the provider raised it.
        """
        limit = asyncio.timeout(_FETCH_SECONDS)
        try:
            async with limit:
                if _is_coroutine_function(self._function):
                    found = await self._function()
                else:
                    found = await self._in_thread()
                    if inspect.isawaitable(found):  # a lambda may call a coroutine function
                        found = await found
        except KafkaError:
            raise
        except NoThread as error:
            raise ConnectionLost(
                f"the provider of SASL tokens was not called: {error}",
                may_have_been_written=False,
            ) from None
        except TimeoutError as error:
            if not limit.expired():
                raise _failed(error) from None
            raise ConnectionLost(
                f"the provider of SASL tokens has not answered within {_FETCH_SECONDS:g} s",
                may_have_been_written=False,
            ) from None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise _failed(error) from None
        except GeneratorExit as error:
            if closed_here(error):
                raise
            raise _failed(error) from None
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001  code of the user
            raise _failed(error) from None
        return self._token(found)

    async def _in_thread(self) -> Any:
        running = self._running
        if running is None:
            running = self._running = Future()
            try:
                await self._offload.run(self._call, running)
            except (Closed, NoThread):
                self._running = None
                raise
        waiting = asyncio.wrap_future(running)
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(waiting)  # the call goes on after a timeout

    def _call(self, done: Future[Any]) -> None:
        try:
            result = self._function()
        except BaseException as error:  # noqa: BLE001  it is raised by `fetch`
            self._running = None
            known = isinstance(error, (KafkaError, *INTERRUPTS))
            done.set_exception(error if known else _failed(error))
        else:
            self._running = None
            done.set_result(result)

    def _token(self, found: object) -> OAuthToken:
        token = OAuthToken(found) if isinstance(found, str) else found
        if not isinstance(token, OAuthToken):
            raise AuthenticationFailed(
                "sasl_oauth_token_provider must return a str or an OAuthToken, not "
                f"{type(found).__name__}"
            )
        if self._extensions is None or token.extensions:
            return checked_token(token)
        try:
            extensions = dict(self._extensions())
        except BaseException as error:
            if is_for_caller(error):
                raise
            raise _failed(error) from None
        return checked_token(OAuthToken(token.value, token.expires_at, extensions))


class FileTokens:
    """Tokens from a file that another program renews.

    Args:
        path: the file, which contains only the token.
        offload: reads the file.
    """

    def __init__(self, path: str, offload: Offload) -> None:
        self._path = path
        self._offload = offload

    async def fetch(self) -> OAuthToken:
        """Return the token in the file.

        Raises:
            AuthenticationFailed: the file cannot be read, or has no token.
        """
        text = await self._offload.run(read_secret_file, self._path)
        return checked_token(OAuthToken(text.strip()))


def read_secret_file(path: str) -> str:
    """Return the text of a small file.

    Raises:
        AuthenticationFailed: the file cannot be read, or is not text of at most 1 MiB.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        if len(data) > _MAX_FILE_BYTES:
            raise ValueError
        return data.decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise AuthenticationFailed(
            f"the file {path!r} cannot be used: {reason or 'it is not a short text in UTF-8'}"
        ) from None


def checked_token(token: OAuthToken) -> OAuthToken:
    """Return the token after a check that it can be sent.

    Raises:
        AuthenticationFailed: the token or an extension has characters that cannot be sent.
    """
    if not is_token(token.value):
        raise AuthenticationFailed(
            "the provider of SASL tokens returned "
            + ("an empty text" if not token.value else "a text that is not a bearer token")
        )
    try:
        check_extensions(token.extensions)
    except OAuthMessageError as error:
        raise AuthenticationFailed(str(error)) from None
    return token


def _is_coroutine_function(function: Callable[[], Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  an object with an `async def __call__`
    )


def _failed(error: BaseException) -> AuthenticationFailed:
    """Return the error for an exception of the user's provider.

    The text of the exception is not shown, because it may contain a secret, such as the URL of a
    request. A provider can raise a KafkaError, whose text is shown.
    """
    place = place_of(error, _SHOWN_FRAMES)
    return AuthenticationFailed(
        f"the provider of SASL tokens raised {type(error).__name__} at {place}"
    )
