"""aiokq.broker.security.authentication.own_check: the caller's own function."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import datetime, timedelta, timezone

import pytest

from aiokq import ExpiringLogin
from aiokq.broker.security.authentication import own_check
from aiokq.broker.security.authentication.exchange import Authenticated, ExchangeFailed
from aiokq.broker.security.authentication.oauthbearer import TokenRefused
from aiokq.broker.security.authentication.own_check import OwnCheck
from aiokq.connection.principal import Principal
from aiokq.connection.request_context import RequestContext

CONTEXT = RequestContext(1, "", "", "CLIENTS")


NOW = 1_700_000_000.0


class Clock:
    def monotonic(self) -> float:
        return 1.0

    def timestamp_ms(self) -> int:
        return int(NOW * 1000)


def check(authenticate) -> OwnCheck:
    return OwnCheck(authenticate, Clock())


@pytest.mark.parametrize("answer", ["alice", Principal.user("alice")])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_function_or_coroutine_function_says_who_it_is(answer, is_async) -> None:
    """It gets the mechanism, the listener, the name and the secret."""
    asked = []

    def authenticate(*arguments):
        asked.append(arguments)
        return answer

    async def authenticate_later(*arguments):
        return authenticate(*arguments)

    own = check(authenticate_later if is_async else authenticate)
    assert await own.password(CONTEXT, "alice", "secret") == Authenticated(Principal.user("alice"))
    found = await own.token(CONTEXT, "a.token")
    assert (found.principal, found.expires_at_ms) == (Principal.user("alice"), None)
    assert asked == [
        ("PLAIN", "CLIENTS", "alice", "secret"),
        ("OAUTHBEARER", "CLIENTS", "", "a.token"),
    ]


async def test_none_refuses_the_login() -> None:
    """For a password as for a token."""
    own = check(lambda *arguments: None)
    assert await own.password(CONTEXT, "alice", "x") is None
    with pytest.raises(TokenRefused):
        await own.token(CONTEXT, "x")


@pytest.mark.parametrize("user", ["alice", Principal.user("alice")])
@pytest.mark.parametrize(
    "expires_at", [NOW + 1.5, datetime.fromtimestamp(NOW + 1.5, timezone(timedelta(hours=5)))]
)
async def test_an_expiring_login_says_when_the_session_ends(user, expires_at) -> None:
    """In seconds since 1970, or as a datetime; for a token as for a password."""
    own = check(lambda *arguments: ExpiringLogin(user, expires_at))
    expected = Authenticated(Principal.user("alice"), int(NOW * 1000) + 1500)
    assert await own.token(CONTEXT, "x") == expected
    assert await own.password(CONTEXT, "alice", "x") == expected


@pytest.mark.parametrize("expires_at", [NOW, NOW - 1, 0, -5.0])
async def test_a_login_that_has_expired_is_refused(expires_at) -> None:
    """Its session would be over before it begins."""
    own = check(lambda *arguments: ExpiringLogin("alice", expires_at))
    assert await own.password(CONTEXT, "alice", "x") is None
    with pytest.raises(TokenRefused):
        await own.token(CONTEXT, "x")


@pytest.mark.parametrize(
    "answer",
    [
        *(True, 1, "", "User:alice", b"alice", ["alice"]),
        *(ExpiringLogin("", NOW + 5), ExpiringLogin(None, NOW + 5)),
        *(
            ExpiringLogin("alice", wrong)
            for wrong in (None, True, "5", float("nan"), float("inf"), 10**400, 1e18)
        ),
        ExpiringLogin("alice", datetime(2100, 1, 1)),
    ],
)
async def test_anything_else_is_a_mistake_that_logs_nobody_in(answer, caplog) -> None:
    """True names nobody, and `User:alice` would be a user of this name."""
    own = check(lambda *arguments: answer)
    with pytest.raises(ExchangeFailed), caplog.at_level(logging.ERROR):
        await own.password(CONTEXT, "alice", "secret")
    assert re.search(r"authenticate\(\) must return|expires_at of an ExpiringLogin", caplog.text)
    assert "secret" not in caplog.text
    with pytest.raises(TokenRefused):
        await own.token(CONTEXT, "x")


async def test_the_text_of_an_exception_is_not_logged(caplog) -> None:
    """It may contain the password; the place where it was raised is logged."""

    def look_up(password):
        raise ValueError(f"bad password {password}") from KeyError(password)

    def authenticate(mechanism, listener, name, secret):
        look_up(secret)

    own = check(authenticate)
    with caplog.at_level(logging.DEBUG):
        with pytest.raises(ExchangeFailed):
            await own.password(CONTEXT, "alice", "hunter2")
        with pytest.raises(TokenRefused):
            await own.token(CONTEXT, "hunter2")
    assert "hunter2" not in caplog.text
    assert all(one.exc_info is None for one in caplog.records)
    assert "error=ValueError" in caplog.text
    assert re.search(r"test_own_check\.py:\d+ in look_up", caplog.text)


async def test_a_function_that_does_not_answer_refuses_the_login(monkeypatch, caplog) -> None:
    """The client would wait, and so would whatever the function holds."""
    cancelled = []

    async def authenticate(*arguments):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(arguments)
            raise

    monkeypatch.setattr(own_check, "TIME_LIMIT", 0.01)
    own = check(authenticate)
    with pytest.raises(ExchangeFailed):
        await own.password(CONTEXT, "alice", "secret")
    with pytest.raises(TokenRefused):
        await own.token(CONTEXT, "x")
    assert len(cancelled) == 2
    assert "error=TimeoutError" in caplog.text


async def test_a_login_that_found_no_turn_is_told_apart(monkeypatch, caplog) -> None:
    """The function has not failed: its calls for other logins take too long."""
    monkeypatch.setattr(own_check, "AT_ONCE", 1)
    answer = asyncio.Event()

    async def authenticate(*arguments):
        await answer.wait()
        return "alice"

    own = check(authenticate)
    first = asyncio.create_task(own.password(CONTEXT, "alice", "secret"))
    await asyncio.sleep(0)
    monkeypatch.setattr(own_check, "TIME_LIMIT", 0.01)
    with pytest.raises(ExchangeFailed):
        await own.password(CONTEXT, "bob", "secret")
    assert "was not called within 0.01 s, because 1 of its calls were running" in caplog.text
    assert "authenticate() failed" not in caplog.text
    answer.set()
    assert await first == Authenticated(Principal.user("alice"))


class Panic(BaseException):
    """As of a Rust extension."""


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("down"),
        StopIteration(),
        KeyError("x"),
        asyncio.CancelledError(),
        GeneratorExit(),
        Panic(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_exception_refuses_the_login_and_is_logged(error, is_async, caplog) -> None:
    """The client gets Kafka's text for a check that could not be made."""

    def fail(*arguments):
        raise error

    async def fail_later(*arguments):
        await asyncio.sleep(0)
        raise error

    authenticate = fail_later if is_async else fail

    with pytest.raises(ExchangeFailed) as failed, caplog.at_level(logging.ERROR):
        await check(authenticate).password(CONTEXT, "alice", "secret")
    assert failed.value.told == "Authentication failed: credentials for user could not be verified"
    assert "authenticate() failed" in caplog.text
    with pytest.raises(TokenRefused):
        await check(authenticate).token(CONTEXT, "x")


async def test_a_cancelled_login_ends(caplog) -> None:
    """Its client has disconnected: nobody waits for the answer, and nothing has failed."""
    begun = asyncio.Event()

    async def authenticate(*arguments):
        begun.set()
        await asyncio.Event().wait()

    login = asyncio.create_task(check(authenticate).password(CONTEXT, "alice", "secret"))
    await begun.wait()
    login.cancel()
    with pytest.raises(asyncio.CancelledError):
        await login
    assert caplog.text == ""


def test_a_login_whose_loop_has_ended_is_closed(caplog) -> None:
    """Python raises GeneratorExit in its coroutine, which is no error of the function."""

    async def authenticate(*arguments):
        await asyncio.sleep(0)

    asked = check(authenticate).password(CONTEXT, "alice", "secret")

    async def begin() -> None:
        asked.send(None)

    asyncio.run(begin())
    asked.close()
    assert caplog.text == ""


def client(host: str, user: str | None = None) -> RequestContext:
    """A client before its login, or that is logged in as a user."""
    made = RequestContext(1, "", host, "CLIENTS")
    if user is not None:
        made.session.mechanism, made.session.principal = "PLAIN", Principal.user(user)
    return made


async def test_strangers_cause_a_limited_number_of_calls_and_take_turns(monkeypatch) -> None:
    """By address, so that one address delays neither the others nor users who log in again."""
    monkeypatch.setattr(own_check, "AT_ONCE", 2)
    running: dict[str, asyncio.Event] = {}
    order = []

    async def authenticate(mechanism, listener, name, secret):
        order.append(name)
        running[name] = asyncio.Event()
        await running[name].wait()
        return name

    own = check(authenticate)
    attacker = [client(f"[2001:db8::{n}]") for n in range(9)]  # one /64 network
    tasks = [
        asyncio.create_task(own.password(one, f"x{n}", "guess")) for n, one in enumerate(attacker)
    ]
    others = [client("10.0.0.1"), client("[2001:db8::1]", "bob")]
    tasks += [
        asyncio.create_task(own.token(other, "") if n else own.password(other, "alice", "secret"))
        for n, other in enumerate(others)
    ]
    for ended in (None, "x0", "x1", "x2"):
        if ended is not None:
            running[ended].set()
        for _ in range(5):
            await asyncio.sleep(0)
    assert order == ["x0", "x1", "x2", "alice", ""]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert len(order) == 5
    running.clear()
    again = asyncio.create_task(own.password(client("10.0.0.2"), "carol", "secret"))
    await asyncio.sleep(0)
    running["carol"].set()
    assert await again == Authenticated(Principal.user("carol"))
