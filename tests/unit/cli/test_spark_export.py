"""`aiokq spark export`: options that are refused before a cluster is contacted."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")
from tests.unit.cli.harness import CommandLine


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-z", "lzo"], "--compression-type: unknown compression type 'lzo'"),
        (["--value-column", "a", "--value-columns", "b"], "exclude each other"),
        (["--partitions", "3"], "--partitions applies only to a new topic: give --create"),
        (
            ["--transaction-rows", "3"],
            "--transaction-rows applies only to transactions: give --tra",
        ),
        (["--ledger-topic", "l"], "--ledger-topic applies only to transactions: give --transact"),
        (["--atomic", "--transaction-bytes", "3"], "--transaction-bytes and --atomic exclude each"),
        (["-H", "a"], "--header-column needs NAME=COLUMN, not 'a'"),
    ],
)
def test_wrong_usage_names_the_option(
    alone: CommandLine, arguments: list[str], complaint: str
) -> None:
    """The error names the flag, and the exit code is 2."""
    result = alone("spark", "export", "a.parquet", "--to", "t", *arguments)

    assert result.code == 2
    assert complaint in result.complaint
