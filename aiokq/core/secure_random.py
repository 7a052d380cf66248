"""Unpredictable random values for passwords, salts and ids."""

from __future__ import annotations

import random
import secrets
from typing import Final

__all__ = ["SYSTEM_RANDOM", "new_password"]

SYSTEM_RANDOM: Final = random.SystemRandom()
"""A source of random values that the operating system provides; it has no seed."""

PASSWORD_BYTES: Final = 24


def new_password() -> str:
    """Return a new password of 32 characters: letters, digits, `-` and `_`."""
    return secrets.token_urlsafe(PASSWORD_BYTES)
