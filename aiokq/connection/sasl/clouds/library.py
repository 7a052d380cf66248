"""`library`: imports the library of a cloud provider, and converts its errors.

The libraries are optional, and take up to a second to import. They are imported in a thread when
the first token is needed.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from aiokq.core.errors import AuthenticationFailed, ConfigError

__all__ = ["library", "need", "no_credentials"]


def need(package: str, extra: str) -> None:
    """Check that a package is installed.

    Raises:
        ConfigError: the package is missing; the error says how to install it.
    """
    try:
        found = importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is missing
        found = False
    if not found:
        raise ConfigError(
            f"sasl_oauth_token_provider needs the package {package}: pip install 'aiokq[{extra}]'"
        )


def library(module: str) -> Any:
    """Return a module of a library that `need` has found."""
    return importlib.import_module(module)


def no_credentials(cloud: str, error: BaseException | None) -> AuthenticationFailed:
    """Return the error for a library that has no credentials, or cannot get a token."""
    told = "" if error is None else f": {type(error).__name__}: {error}"
    return AuthenticationFailed(f"there is no token of {cloud}{told}")
