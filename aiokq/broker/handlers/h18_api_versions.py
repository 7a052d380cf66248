"""ApiVersions (18), versions 0-4: return the APIs that this node serves, with their versions.

The dispatcher answers a version above 4 with UNSUPPORTED_VERSION in a response of version 0
(KIP-511).

Errors: INVALID_REQUEST (the name or version of the client software does not match Kafka's pattern).

Up to version 3, supported features whose lowest level is 0 are left out, because older Java clients
refuse a response with such features.

v0  version ranges        v3  client software name and version, features
v1  throttle time         v4  features whose lowest level is 0
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aiokq.broker.metadata.image.features import supported_ranges
from aiokq.connection.request_context import SessionState
from aiokq.core.errors import InvalidRequest
from aiokq.wire.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Cluster, Quorum
    from aiokq.broker.handlers.call import Call
    from aiokq.broker.metadata.quorum_description import FinalizedFeatures
    from aiokq.connection.request_context import Session

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


_SUPPORTED: Final = supported_ranges()

FIRST_WITH_FEATURES: Final = 3
FIRST_WITH_LEVEL_0: Final = 4


async def handle(
    cluster: Cluster, quorum: Quorum, request: ApiVersionsRequest, call: Call
) -> ApiVersionsResponse:
    """Return version ranges and features; store the client's software name and version."""
    if not introduce(request, call.version, call.connection.session):
        return ApiVersionsResponse(error_code=InvalidRequest.code)
    return versions(cluster, quorum.features(), call.version)


def introduce(request: ApiVersionsRequest, version: int, session: Session) -> bool:
    """Store the client's software name and version; return False if they are not valid.

    If they are valid and a login is required, the client has to send SaslHandshake next: as in
    Kafka, a second ApiVersions before the login is refused.
    """
    if version >= FIRST_WITH_FEATURES and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return False
    session.software_name = request.client_software_name
    session.software_version = request.client_software_version
    if session.state is SessionState.HANDSHAKE:
        session.state = SessionState.MECHANISM
    return True


def versions(cluster: Cluster, finalized: FinalizedFeatures, version: int) -> ApiVersionsResponse:
    """Return version ranges and features."""
    response = ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in cluster.advertised_versions
        ]
    )
    if version >= FIRST_WITH_FEATURES:
        response.finalized_features_epoch = finalized.epoch
        response.finalized_features = [
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized.levels.items()
        ]
        response.supported_features = [
            SupportedFeatureKey(name=name, min_version=least, max_version=most)
            for name, (least, most) in _SUPPORTED.items()
            if least or version >= FIRST_WITH_LEVEL_0
        ]
    return response
