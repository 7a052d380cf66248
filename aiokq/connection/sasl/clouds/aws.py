"""Tokens for Amazon MSK with IAM access control: a signed request as OAUTHBEARER token.

The token is the URL of a request to kafka-cluster:Connect, signed by AWS Signature Version 4 with
`hmac`. Only the credentials come from a library, botocore, which knows all their sources: the
environment, profiles, roles of instances, containers and web identities, and single sign-on.

Source: AWS General Reference, Signature Version 4; the format of aws-msk-iam-sasl-signer-python.
Tests: ``tests/unit/connection/sasl/clouds/test_aws.py``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from aiokq.connection.sasl.clouds.library import library, need, no_credentials
from aiokq.connection.sasl.oauth_token import OAuthToken
from aiokq.core.errors import AuthenticationFailed, ConfigError
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokq.core.clock import Clock
    from aiokq.core.offload import Offload

__all__ = ["AwsCredentials", "MskIamTokens", "region_of", "signed_token"]

LIFE_SECONDS: Final = 900
"""Life of a token, the longest that MSK accepts."""

_SERVICE: Final = "kafka-cluster"
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_HOST: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$")
_REGION: Final = re.compile(r"[a-z0-9-]+")


class AwsCredentials(NamedTuple):
    """Credentials of AWS; `session_token` is None unless they are temporary."""

    access_key: str
    secret_key: str
    session_token: str | None

    def __repr__(self) -> str:
        return "<AwsCredentials>"


class MskIamTokens:
    """Tokens for Amazon MSK with IAM access control.

    Args:
        region: such as "eu-central-1".
        offload: runs botocore.
        clock: the time of the signature.
        credentials: returns the credentials; called in a thread.

    Raises:
        ConfigError: botocore is not installed.
    """

    def __init__(
        self,
        region: str,
        *,
        offload: Offload,
        clock: Clock,
        credentials: Callable[[], AwsCredentials] | None = None,
    ) -> None:
        if credentials is None:
            need("botocore", "aws")
        self._region = region
        self._offload = offload
        self._clock = clock
        self._credentials = credentials or _Session().credentials

    def __repr__(self) -> str:
        return f"<MskIamTokens of {self._region}>"

    async def fetch(self) -> OAuthToken:
        """Return a new token.

        Raises:
            AuthenticationFailed: botocore finds no credentials.
        """
        credentials = await self._offload.run(self._credentials)
        return signed_token(self._region, credentials, self._clock.timestamp_ms() // 1000)


class _Session:
    """A session of botocore, which renews temporary credentials."""

    def __init__(self) -> None:
        self._found: Any = None

    def credentials(self) -> AwsCredentials:
        try:
            if self._found is None:
                self._found = library("botocore.session").get_session().get_credentials()
            if self._found is None:
                raise no_credentials("AWS", None)
            frozen = self._found.get_frozen_credentials()
        except AuthenticationFailed:
            raise
        except Exception as error:
            raise no_credentials("AWS", error) from error
        return AwsCredentials(frozen.access_key, frozen.secret_key, frozen.token)


def region_of(host: str, environ: Callable[[str], str | None]) -> str:
    """Return the region in the host name of a broker, or in the environment.

    Raises:
        ConfigError: neither contains a region.
    """
    found = _HOST.search(host)
    region = found[1] if found else environ("AWS_REGION") or environ("AWS_DEFAULT_REGION") or ""
    if not _REGION.fullmatch(region):
        raise ConfigError(
            f"the host name {host!r} has no AWS region: set the environment variable AWS_REGION"
        )
    return region


def signed_token(region: str, credentials: AwsCredentials, now: int) -> OAuthToken:
    """Return a token that is valid from `now`, which is in seconds since 1970."""
    host = f"kafka.{region}.amazonaws.com"
    moment = strftime("%Y%m%dT%H%M%SZ", gmtime(now))
    scope = f"{moment[:8]}/{region}/{_SERVICE}/aws4_request"
    query = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(LIFE_SECONDS),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.session_token:
        query["X-Amz-Security-Token"] = credentials.session_token
    signed = "&".join(f"{name}={quote(query[name], safe='-_.~')}" for name in sorted(query))
    nothing = hashlib.sha256(b"").hexdigest()
    request = f"GET\n/\n{signed}\nhost:{host}\n\nhost\n{nothing}"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"{_ALGORITHM}\n{moment}\n{scope}\n{digest}"
    key = f"AWS4{credentials.secret_key}".encode()
    for part in (moment[:8], region, _SERVICE, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    url = f"https://{host}/?{signed}&X-Amz-Signature={signature}&User-Agent=aiokq"
    token = base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
    return OAuthToken(token, now + LIFE_SECONDS)
