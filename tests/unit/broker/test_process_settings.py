"""aiokq.broker.process_settings: the precedence of options and files."""

from __future__ import annotations

from pathlib import Path

from aiokq.broker.options import read_options
from aiokq.broker.process_settings import choose_settings


def test_set_takes_precedence_in_any_spelling(tmp_path: Path) -> None:
    """A name may have `_` in one place and `.` in the other."""
    (tmp_path / "config").write_text("num.partitions=2\nbroker.rack=r\n")
    options = read_options(["--config", str(tmp_path / "config"), "--set", "num_partitions=3"])
    assert options is not None
    settings = choose_settings(options).settings
    assert (settings.num_partitions, settings.broker_rack) == (3, "r")
