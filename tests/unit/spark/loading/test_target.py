"""Whose a target is: that of the load that began there, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokq.spark.loading.options import OptionError
from aiokq.spark.loading.target import Target


def test_a_load_that_never_began_binds_nobody(tmp_path: Path) -> None:
    """After a schema that Spark refused, the right one was refused as another load's."""
    target = Target(tmp_path / "out", None)
    with target.opened({"value_schema": "id bignt"}):
        pass
    with target.opened({"value_schema": "id bigint"}):
        pass
    assert target.identity() == {"value_schema": "id bigint"}


def test_a_load_that_began_is_gone_on_with_by_the_same_options_only(tmp_path: Path) -> None:
    """Offsets are planned, though no batch is done."""
    target = Target(tmp_path / "out", None)
    with target.opened({"value_schema": "id bigint"}):
        (target.root / "_aiokq_checkpoint").mkdir()
    with pytest.raises(OptionError, match="was loaded with"), target.opened({"value_schema": "x"}):
        pass
    with target.opened({"value_schema": "id bigint"}):
        pass
