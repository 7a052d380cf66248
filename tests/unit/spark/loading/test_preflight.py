"""What is wrong with a load is told before Spark starts, by the load's own options."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokq.spark.loading.options import LoadOptions, OptionError
from aiokq.spark.loading.preflight import look


def test_a_beginning_that_is_no_json_is_told_by_the_loads_option(tmp_path: Path) -> None:
    """Who wrote --from has never heard of startingOffsets."""
    options = LoadOptions(
        to=tmp_path, topics=("t",), kafka={"bootstrap.servers": "a:1"}, starting='{"t":'
    )
    with pytest.raises(OptionError, match=r"^starting: Expected e\.g\.") as caught:
        look(options, None)
    assert caught.value.option == "starting"
