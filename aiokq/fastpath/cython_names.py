"""Replacements for the names of the module `cython`, for parts that run uncompiled.

Cython is needed to build aiokq, never to run it. The Cython compiler ignores this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

compiled = False


def _same(thing: T) -> T:
    return thing


def _option(*_args: object, **_options: object) -> Callable[[T], T]:
    return _same


cclass = cfunc = final = inline = no_gc = _same
freelist = exceptval = _option
