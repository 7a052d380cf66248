"""Tokens from the user's provider, in all its forms, and from a file."""

from __future__ import annotations

import asyncio
import re
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

from aiokq.connection.sasl.oauth_token import OAuthToken
from aiokq.connection.sasl.token_sources import FileTokens, ProvidedTokens
from aiokq.core.errors import AuthenticationFailed, ConnectionLost
from aiokq.core.offload import InlineOffload, ThreadOffload


async def coroutine() -> str:
    await asyncio.sleep(0)
    return "t"


class Object:
    """A provider as in aiokafka."""

    async def token(self) -> str:
        return "t"

    def extensions(self) -> dict[str, str]:
        return {"x": "1"}


class Blocking:
    """A provider whose method blocks, and that has no extensions."""

    def token(self) -> OAuthToken:
        return OAuthToken("t", 5.0)


class Callable:
    async def __call__(self) -> str:
        return "t"


@pytest.mark.parametrize(
    ("provider", "token"),
    [
        (coroutine, OAuthToken("t")),
        (lambda: "t", OAuthToken("t")),
        (lambda: coroutine(), OAuthToken("t")),
        (Object(), OAuthToken("t", None, {"x": "1"})),
        (Blocking(), OAuthToken("t", 5.0)),
        (Callable(), OAuthToken("t")),
        (lambda: OAuthToken("t", 5.0, {"y": "2"}), OAuthToken("t", 5.0, {"y": "2"})),
    ],
)
async def test_each_form_of_provider_gives_its_token(provider: Any, token: OAuthToken) -> None:
    assert await ProvidedTokens(provider, InlineOffload()).fetch() == token


async def test_a_function_runs_in_a_thread() -> None:
    """It may block, for example for a request."""
    offload = ThreadOffload(1)
    try:
        source = ProvidedTokens(lambda: threading.current_thread().name, offload)
        with pytest.raises(AuthenticationFailed, match="not a bearer token"):
            await ProvidedTokens(lambda: "with blanks", offload).fetch()
        assert (await source.fetch()).value != threading.current_thread().name
    finally:
        offload.close()


async def test_a_function_that_hangs_is_not_called_again() -> None:
    """Each further call would take a thread; the result of the first call is used."""
    offload = ThreadOffload(4)
    go = threading.Event()
    calls: list[None] = []

    def provider() -> str:
        calls.append(None)
        go.wait(10)
        return "t"

    source = ProvidedTokens(provider, offload)
    try:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await source.fetch()
        waiting = asyncio.create_task(source.fetch())
        await asyncio.sleep(0.05)
        go.set()
        assert (await waiting).value == "t"
        assert len(calls) == 1
        assert (await source.fetch()).value == "t"
        assert len(calls) == 2
    finally:
        go.set()
        offload.close()


def raising(error: BaseException) -> Any:
    def provider() -> str:
        raise error

    async def coroutine_provider() -> str:
        raise error

    return [provider, coroutine_provider]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no route"),
        StopIteration(),
        GeneratorExit(),
        asyncio.CancelledError(),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("threads", [False, True])
async def test_whatever_a_provider_raises_is_an_authentication_error(
    error: BaseException, kind: int, threads: bool
) -> None:
    offload = ThreadOffload(1) if threads else InlineOffload()
    try:
        with pytest.raises(AuthenticationFailed, match="the provider of SASL tokens raised"):
            await ProvidedTokens(raising(error)[kind], offload).fetch()
    finally:
        offload.close()


@pytest.mark.parametrize("kind", [0, 1])
async def test_the_text_of_an_exception_is_not_shown(kind: int) -> None:
    """It may contain a secret. The error names the type and the place, also in a traceback."""
    error = ValueError("https://idp/token?client_secret=hidden")
    offload = ThreadOffload(1)
    try:
        with pytest.raises(AuthenticationFailed, match="raised ValueError at") as caught:
            await ProvidedTokens(raising(error)[kind], offload).fetch()
    finally:
        offload.close()
    shown = "".join(traceback.format_exception(caught.value))
    assert "hidden" not in shown + repr(caught.value)
    assert re.search(r"test_token_sources\.py:\d+ in (coroutine_)?provider", str(caught.value))


@pytest.mark.parametrize("error", [ValueError("hidden"), asyncio.CancelledError("hidden")])
async def test_extensions_may_raise_anything(error: BaseException) -> None:
    """As the token itself."""

    class Provider:
        def token(self) -> str:
            return "t"

        def extensions(self) -> dict[str, str]:
            raise error

    with pytest.raises(AuthenticationFailed, match="the provider of SASL tokens raised") as caught:
        await ProvidedTokens(Provider(), InlineOffload()).fetch()
    assert "hidden" not in str(caught.value)


async def test_the_text_of_a_kafka_error_is_shown() -> None:
    """A provider can say in this way why there is no token."""
    for provider in raising(ConnectionLost("the vault is sealed")):
        with pytest.raises(ConnectionLost, match="the vault is sealed"):
            await ProvidedTokens(provider, InlineOffload()).fetch()


@pytest.mark.parametrize("found", [None, 1, b"t", ["t"]])
async def test_other_results_are_refused(found: Any) -> None:
    with pytest.raises(AuthenticationFailed, match="must return a str or an OAuthToken"):
        await ProvidedTokens(lambda: found, InlineOffload()).fetch()


@pytest.mark.parametrize("text", ["", "two words", "t\n", "hidden;"])
async def test_a_text_that_is_not_a_token_is_not_shown(text: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        await ProvidedTokens(lambda: text, InlineOffload()).fetch()
    assert "hidden" not in str(caught.value)
    assert "words" not in str(caught.value)


async def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    """As Kubernetes renews a token in a file."""
    path = tmp_path / "token"
    path.write_text("one\n")
    source = FileTokens(str(path), InlineOffload())
    assert (await source.fetch()).value == "one"
    path.write_text("two")
    assert (await source.fetch()).value == "two"


async def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(AuthenticationFailed, match="token' cannot be used: No such file"):
        await FileTokens(str(path), InlineOffload()).fetch()
    path.write_bytes(b"\xff")
    with pytest.raises(AuthenticationFailed, match="not a short text"):
        await FileTokens(str(path), InlineOffload()).fetch()
    path.write_bytes(b"x" * 2_000_000)
    with pytest.raises(AuthenticationFailed, match="not a short text"):
        await FileTokens(str(path), InlineOffload()).fetch()
    with pytest.raises(AuthenticationFailed, match="cannot be used"):
        await FileTokens(str(tmp_path), InlineOffload()).fetch()
