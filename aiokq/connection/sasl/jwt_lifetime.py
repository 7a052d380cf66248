"""`lifetime_of`: the issue time and the expiry time of a JWT.

The signature is not verified, because the client only needs to know when to fetch a new token.

Tests: ``tests/unit/connection/sasl/test_jwt_lifetime.py``.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Final

__all__ = ["lifetime_of"]

_LATEST: Final = 253402300799
"""The last second of the year 9999."""


def lifetime_of(token: str) -> tuple[float | None, float | None]:
    """Return the claims `iat` and `exp` of a JWT, in seconds since 1970.

    Both claims are None if the token is not a JWT. A claim is None if it is missing, or is
    not a time before the year 10000.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return None, None
    try:
        payload = parts[1].rstrip("=")
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(claims, dict):
        return None, None
    return _seconds(claims.get("iat")), _seconds(claims.get("exp"))


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return float(value) if 0 <= value <= _LATEST else None
