"""Tokens for Amazon MSK: the signature, the region, and botocore's errors."""

from __future__ import annotations

import base64
import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from aiokq.connection.sasl.clouds import check_cloud, cloud_tokens
from aiokq.connection.sasl.clouds.aws import (
    AwsCredentials,
    MskIamTokens,
    region_of,
    signed_token,
)
from aiokq.connection.sasl.oauthbearer_messages import is_token
from aiokq.core.clock import SystemClock
from aiokq.core.errors import AuthenticationFailed, ConfigError
from aiokq.core.offload import InlineOffload

CREDENTIALS = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None)
NOW = 1_440_938_160
"""2015-08-30 12:36:00 UTC."""


def url_of(token: str) -> str:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


def test_the_token_is_a_signed_url() -> None:
    """The signatures were made by botocore's SigV4QueryAuth with the same values."""
    token = signed_token("us-east-1", CREDENTIALS, NOW)
    assert is_token(token.value)
    assert token.expires_at == NOW + 900
    url = urlsplit(url_of(token.value))
    assert (url.scheme, url.netloc, url.path) == ("https", "kafka.us-east-1.amazonaws.com", "/")
    query = {name: value for name, (value,) in parse_qs(url.query).items()}
    assert query == {
        "Action": "kafka-cluster:Connect",
        "User-Agent": "aiokq",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": "AKIDEXAMPLE/20150830/us-east-1/kafka-cluster/aws4_request",
        "X-Amz-Date": "20150830T123600Z",
        "X-Amz-Expires": "900",
        "X-Amz-Signature": "c413a83bc64a339e31a5e5e9ed99d778ff843206b427540cafa5122c01e3e993",
        "X-Amz-SignedHeaders": "host",
    }


def test_temporary_credentials_are_signed_too() -> None:
    temporary = CREDENTIALS._replace(session_token="a/b+c=")
    query = parse_qs(urlsplit(url_of(signed_token("eu-central-1", temporary, NOW).value)).query)
    assert query["X-Amz-Security-Token"] == ["a/b+c="]
    assert query["X-Amz-Signature"] == [
        "bf2f7b9cf8232f3f8bad97996cc4d687cc87894b5a4b7d0fc97d1ef66ca0a27f"
    ]


@pytest.mark.parametrize(
    ("host", "environ", "region"),
    [
        ("b-1.demo.abc123.c2.kafka.eu-central-1.amazonaws.com", {}, "eu-central-1"),
        ("boot-x.c1.kafka-serverless.us-east-1.amazonaws.com", {"AWS_REGION": "x"}, "us-east-1"),
        ("b-1.demo.abc123.c2.kafka.cn-north-1.amazonaws.com.cn", {}, "cn-north-1"),
        ("localhost", {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "x"}, "eu-west-1"),
        ("localhost", {"AWS_DEFAULT_REGION": "eu-west-2"}, "eu-west-2"),
    ],
)
def test_the_region(host: str, environ: dict[str, str], region: str) -> None:
    assert region_of(host, environ.get) == region


@pytest.mark.parametrize("region", [None, "", "a/b", "a.evil.example/"])
def test_no_region(region: str | None) -> None:
    with pytest.raises(ConfigError, match="AWS_REGION"):
        region_of("localhost", lambda name: region)


def botocore(monkeypatch: pytest.MonkeyPatch, credentials: Any) -> None:
    """Replace botocore by a module that has these credentials, or raises them."""

    def get_credentials() -> Any:
        if isinstance(credentials, Exception):
            raise credentials
        return credentials

    session = ModuleType("botocore.session")
    session.get_session = lambda: SimpleNamespace(  # type: ignore[attr-defined]
        get_credentials=get_credentials
    )
    package = ModuleType("botocore")
    package.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "botocore", package)
    monkeypatch.setitem(sys.modules, "botocore.session", session)


async def test_botocore_gives_the_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = SimpleNamespace(access_key="A", secret_key="hidden", token=None)
    botocore(monkeypatch, SimpleNamespace(get_frozen_credentials=lambda: frozen))
    source = cloud_tokens(
        "aws_msk_iam",
        "b-1.x.kafka.eu-central-1.amazonaws.com",
        offload=InlineOffload(),
        clock=SystemClock(),
    )
    url = url_of((await source.fetch()).value)
    assert "X-Amz-Credential=A%2F" in url
    assert "hidden" not in url + repr(source)


@pytest.mark.parametrize("credentials", [None, RuntimeError("no profile")])
async def test_missing_credentials_are_named(
    credentials: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    botocore(monkeypatch, credentials)
    source = MskIamTokens("eu-central-1", offload=InlineOffload(), clock=SystemClock())
    with pytest.raises(AuthenticationFailed, match="there is no token of AWS"):
        await source.fetch()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(ConfigError, match=r"pip install 'aiokq\[aws\]'"):
        MskIamTokens("eu-central-1", offload=InlineOffload(), clock=SystemClock())


def test_other_names_are_refused() -> None:
    check_cloud("aws_msk_iam")
    with pytest.raises(ConfigError, match="aws_msk_iam, azure_event_hubs"):
        check_cloud("aws")


def test_credentials_are_not_shown() -> None:
    assert repr(CREDENTIALS) == "<AwsCredentials>"
