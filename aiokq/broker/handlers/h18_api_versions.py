"""ApiVersions (18), versions 0-4: return the APIs that this node serves, with their versions.

The dispatcher answers a version above 4 with UNSUPPORTED_VERSION in a response of version 0
(KIP-511).

Errors: INVALID_REQUEST (the name or version of the client software does not match Kafka's pattern).

v0  the ranges            v3  client software name and version, features
v1  throttle time         v4  features whose minimum is 0 may be sent
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aiokq.core.errors import InvalidRequest
from aiokq.wire.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from aiokq.broker.handlers.areas import Cluster
    from aiokq.broker.handlers.call import Call

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle(cluster: Cluster, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    """Return the advertised ranges, and keep the client's software name and version."""
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=InvalidRequest.code)
    session = call.connection.session
    session.software_name = request.client_software_name
    session.software_version = request.client_software_version
    # No feature is finalized, so none is listed: a client that sees `transaction.version` or
    # `group.version` would use the feature.
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in cluster.advertised_versions
        ],
        finalized_features_epoch=0 if call.version >= 3 else -1,
    )
