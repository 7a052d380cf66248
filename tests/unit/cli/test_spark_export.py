"""`aiokq spark export`: what is refused before a cluster is looked for."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
from tests.unit.cli.harness import CommandLine


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-z", "lzo"], "--compression-type: unknown compression type 'lzo'"),
        (["--value-column", "a", "--value-columns", "b"], "exclude each other"),
        (["--partitions", "3"], "--partitions is of a new topic: give --create"),
        (["-H", "a"], "--header-column takes NAME=COLUMN, not 'a'"),
    ],
)
def test_wrong_usage_names_the_option(
    alone: CommandLine, arguments: list[str], complaint: str
) -> None:
    """As it is called on the command line; exit code 2."""
    result = alone("spark", "export", "a.parquet", "--to", "t", *arguments)

    assert result.code == 2
    assert complaint in result.complaint
