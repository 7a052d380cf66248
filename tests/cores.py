"""Both cores in one process: the names of all units, of the compiled parts and of the pure ones."""

from __future__ import annotations

import os
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from aiokq.core.types import Buffer
from aiokq.fastpath.loading import load
from aiokq.fastpath.units import UNITS

BUILT = find_spec("aiokq.fastpath._shared") is not None
NAMES = ["compiled", "pure"]


def core(name: str) -> SimpleNamespace:
    """The core "compiled" or "pure"; skips the test if it is not built."""
    compiled = name == "compiled"
    if compiled and not BUILT and os.environ.get("AIOKQ_REQUIRE_COMPILED") != "1":
        pytest.skip("the compiled core is not built: make setup", allow_module_level=True)
    given = {name: value for unit in UNITS for name, value in load(unit, compiled).items()}
    return SimpleNamespace(**given, COMPILED=compiled)


def cores() -> list[SimpleNamespace]:
    """The pure core, and the compiled one where it is built."""
    return [core(name) for name in NAMES if BUILT or name == "pure"]


def split(accumulator: Any, batch: Any, payload: Buffer | None = None) -> list[Any]:
    """Split a batch in two as a producer does (`aiokq.producer.batch_split`), on either core."""
    if len(batch) < 2:
        raise ValueError("a batch of one record cannot be split")
    records = batch.records(payload)
    accumulator.release(batch)
    middle = -(-len(records) // 2)
    parts, targets = [], []
    for half in (records[:middle], records[middle:]):
        part, deliveries = accumulator.new_batch(batch.slot, half, batch.created)
        parts.append(part)
        targets.extend(deliveries)
    batch.forward(targets)
    return parts
