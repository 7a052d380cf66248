"""The types of arguments.py, whose functions only the other parts call."""

from __future__ import annotations

from typing import Final

__all__: Final[list[str]]
