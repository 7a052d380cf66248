"""`common_versions`: the versions of an API that both ends of a connection support."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.core.errors import UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokq.wire import Request, Response

__all__ = ["common_versions"]


def common_versions(
    request_class: type[Request[Response]],
    theirs: Mapping[int, tuple[int, int]],
    *,
    node: int | str,
) -> tuple[int, int]:
    """Return the oldest and the newest version of an API that both sides support.

    Args:
        request_class: class of the request.
        theirs: the broker's (oldest, newest) version by API key.
        node: the broker, for the error.

    Raises:
        UnsupportedVersion: the broker does not have the API, or no version is common to both sides.
    """
    found = theirs.get(request_class.API_KEY)
    if found is None:
        raise UnsupportedVersion(
            f"the broker does not have {request_class.NAME}: it is older than the feature needs, "
            "or has the feature disabled",
            api=request_class.NAME,
            node=node,
        )
    oldest = max(found[0], request_class.MIN_VERSION)
    newest = min(found[1], request_class.MAX_VERSION)
    if newest < oldest:
        raise UnsupportedVersion(
            f"the broker has versions {found[0]}-{found[1]} of {request_class.NAME}, aiokq has "
            f"{request_class.MIN_VERSION}-{request_class.MAX_VERSION}: upgrade the older one",
            api=request_class.NAME,
            node=node,
        )
    return oldest, newest
