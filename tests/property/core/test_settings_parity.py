"""Settings as keywords, checked by the generated table, against the models it is made from."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from decimal import Decimal
from enum import IntEnum, StrEnum
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokq.admin.values import AdminValues
from aiokq.assign.range import RangeAssignor
from aiokq.cluster.values import ClusterValues
from aiokq.consumer.values import ConsumerValues
from aiokq.core.errors import ConfigError
from aiokq.core.settings import Settings
from aiokq.core.values import (
    Row,
    Values,
    boolean,
    choice_by_name,
    instance,
    integer,
    real,
    secret,
    text,
    text_or_texts,
)
from aiokq.producer.interceptors import Interceptor
from aiokq.producer.values import ProducerValues

KINDS: list[type[ClusterValues]] = [ClusterValues, ProducerValues, ConsumerValues, AdminValues]


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL, logger="aiokq"):
        yield


class Number(IntEnum):
    ONE = 1


class Word(StrEnum):
    NONE = "none"


class Text(str):
    pass


class Upper:
    def serialize(self, topic: object, headers: object, data: object) -> bytes:
        return b""

    def deserialize(self, topic: object, headers: object, data: bytes) -> object:
        return data

    def partition(self, *args: object) -> int:
        return 0


CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

SAMPLES: list[object] = [
    None,
    True,
    False,
    Number.ONE,
    Word.NONE,
    Text("classic"),
    Decimal("7"),
    b"7",
    "7",
    " 8 ",
    "1_000",
    "7.5",
    "true",
    "",
    "none",
    "ALL",
    "all",
    "a:1,b:2",
    "a:1;b:2",
    "orders:zstd, clicks:lz4",
    "range, sticky",
    "by_duration:pt1h",
    "EARLIEST",
    "sasl_ssl",
    "\udcff",
    "größe",
    "x" * 70_000,
    (),
    [],
    ["a:1"],
    ("a:1", "b:2"),
    ["a:1", 7],
    {"a:1"},
    {},
    {"orders": "zstd"},
    {"orders": "zip"},
    {7: "zstd"},
    ("range",),
    ["range", RangeAssignor()],
    RangeAssignor(),
    RangeAssignor,
    Interceptor(),
    [Interceptor()],
    (Interceptor(), "x"),
    Upper(),
    Upper,
    len,
    str,
    CONTEXT,
    SimpleNamespace(),
    object(),
    1.0,
    0.5,
    -1,
    0,
    1,
    10**400,
    float("nan"),
    float("inf"),
    -float("inf"),
]
"""What is given by mistake, or in another spelling."""

ANYTHING = st.one_of(
    st.sampled_from(SAMPLES),
    st.integers(-3, 20),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=3),
)

UNKNOWN = ["linger", "lingerms", "acks_", "transaction_timeout_ms", "retries", "group_id", "xyzzy"]
"""No settings, or those of another client."""


def plausible(row: Row) -> list[object]:
    """What a row is made for, and what lies just beyond it."""
    values: list[object] = [row.default, *row.choices]
    for bound in (row.at_least, row.at_most):
        if bound is not None:
            values += [bound - 1, bound, bound + 1, float(bound), bound - 0.5, bound + 0.5]
    values += {
        boolean: [True, False],
        integer: [5, 600, 50_000, 200_000],
        real: [5, 0.5, 200_000],
        text: ["a", "plain", "earliest"],
        secret: ["hush"],
        text_or_texts: ["a:1", ("a:1", "b:1"), ["[::1]:9", "b:2,c:3"]],
        instance: [len, Upper(), CONTEXT],
    }.get(row.kind, [])
    return values


@st.composite
def keywords(draw: st.DrawFn, kind: type[Values]) -> dict[str, object]:
    names = draw(st.lists(st.sampled_from(sorted(kind.TABLE)), unique=True, max_size=6))
    # Most are right: one wrong value hides what the rest would give.
    found = {name: draw(st.sampled_from(plausible(kind.TABLE[name]))) for name in names}
    if names and draw(st.integers(0, 3)) == 0:
        found[draw(st.sampled_from(names))] = draw(ANYTHING)
    if draw(st.integers(0, 9)) == 0:
        found[draw(st.sampled_from(UNKNOWN))] = draw(ANYTHING)
    return found


FOLLOWS = [
    "bootstrap_addresses",
    "default_api_timeout",
    "explicit",
    "of_cluster",
    "request_timeout",
    "uses_sasl",
    "uses_tls",
]
FOLLOWS_TOO = {
    ProducerValues: ["delivery_timeout", "lingers_when_awaited", "required_acks", "timeouts"],
    ConsumerValues: ["auto_commit", "rebalance_timeout", "reset_duration_ms"],
}


def seen(kind: type[Values], settings: Settings | Values) -> list[tuple[str, object]]:
    """All that the settings say, with the types of what they say."""
    said: list[tuple[str, object]] = []
    for name in [*kind.TABLE, *FOLLOWS, *FOLLOWS_TOO.get(kind, ())]:
        value = getattr(settings, name)
        if hasattr(value, "get_secret_value"):
            value = value.get_secret_value()
        said.append((name, (type(value), value)))
    return said


def answer(kind: type[Values], make: object, given: dict[str, object]) -> object:
    try:
        return seen(kind, make(given))  # type: ignore[operator]
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_keywords_and_models_give_the_same_answer(kind: type[ClusterValues], data: st.DataObject):
    """Producer(linger_ms=5) must be Producer(settings=ProducerSettings(linger_ms=5))."""
    keywords_ = data.draw(keywords(kind))
    of_cluster = frozenset(ClusterValues.TABLE) & keywords_.keys()
    if data.draw(st.booleans()):
        of_cluster = frozenset()
    by_table = answer(kind, lambda given: kind.given(given, of_cluster), keywords_)
    by_model = answer(kind, lambda given: kind.model()(**given, _of_cluster=of_cluster), keywords_)
    assert by_table == by_model


TLS = {"security_protocol": "SSL"}
"""What settings of files need beside them."""

ROWS = [(kind, name) for kind in KINDS for name in kind.TABLE]


@pytest.mark.parametrize(("kind", "name"), ROWS, ids=lambda item: getattr(item, "__name__", item))
def test_each_setting_alone_gives_the_same_answer(kind: type[ClusterValues], name: str):
    """Every value that is given by mistake, for every setting."""
    for value in [*plausible(kind.TABLE[name]), *SAMPLES]:
        by_table = answer(kind, kind.given, {name: value})
        by_model = answer(kind, lambda given: kind.model()(**given), {name: value})
        assert by_table == by_model, repr(value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_values_and_their_model_are_made_from_each_other(
    kind: type[ClusterValues], data: st.DataObject
):
    """`producer.settings` must say what the producer does."""
    keywords_ = data.draw(keywords(kind))
    try:
        values = kind.given(keywords_)
    except Exception:
        return
    model = values.settings
    assert seen(kind, model) == seen(kind, values)
    assert seen(kind, kind.of(model)) == seen(kind, values)
    assert kind.of(model).settings is model


TEXTS = [(kind, name) for kind, name in ROWS if kind.TABLE[name].kind in (text, text_or_texts)]
SECRETS = [(kind, name) for kind, name in ROWS if kind.TABLE[name].kind is secret]


@pytest.mark.parametrize("bad", ["svc-\udcff", "x" * 32_768, "ß" * 16_384], ids=ascii)
@pytest.mark.parametrize(("kind", "name"), TEXTS, ids=lambda item: getattr(item, "__name__", item))
def test_text_that_no_request_can_hold_is_refused_at_once(
    kind: type[ClusterValues], name: str, bad: str
):
    """A client id of bytes that are no text ended the whole client at its first request."""
    if name in kind.model().FILES:
        beside = {"ssl_certfile": "c.pem"} if name == "ssl_keyfile" else {}
        assert kind.given(TLS | beside | {name: bad}).explicit_values()[name] == bad
        return
    with pytest.raises(ConfigError, match=name) as caught:
        kind.given({name: bad})
    str(caught.value).encode()  # it can be printed


@pytest.mark.parametrize(
    ("kind", "name"), SECRETS, ids=lambda item: getattr(item, "__name__", item)
)
def test_a_secret_that_is_not_utf_8_is_refused_and_not_shown(kind: type[ClusterValues], name: str):
    """PLAIN and OpenSSL encode passwords as UTF-8."""
    with pytest.raises(ConfigError, match=name) as caught:
        kind.given({name: "hush\udcff"})
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(("kind", "name"), ROWS, ids=lambda item: getattr(item, "__name__", item))
def test_the_table_takes_the_default_and_the_bounds_of_each_setting(
    kind: type[ClusterValues], name: str
):
    """A table that took nothing would be right about everything, and load the models always."""
    row = kind.TABLE[name]
    by_name = row.kind is choice_by_name
    for value in (row.default, row.at_least, row.at_most, *row.choices):
        if value is None and not row.optional:
            continue  # no such bound
        given = {"orders": value} if by_name and value in row.choices else value
        assert row.take(given) == (-1 if given == "all" else given)
    with pytest.raises(ValueError):
        row.take(object())
