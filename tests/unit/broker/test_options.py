"""aiokq.broker.options and option_parser: two ways to read one command line."""

from __future__ import annotations

import pytest

from aiokq.broker.option_parser import parse_options
from aiokq.broker.options import read_options


def unexpected(message: str) -> int:
    raise AssertionError(message)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--json",
        "--port 0 --json --profile kafka --data-dir a --set num.partitions=4",
        "--data-dir a --data-dir b --set x=1 --set y= --node-id 7",
        "--host :: --advertise [::1]:9092 --metrics-port 8080 --config server.properties",
        "--port 1 --port 2 --profile dev --profile kafka",
    ],
)
def test_complete_options_are_read_as_argparse_reads_them(line: str) -> None:
    """The table alone has to give the same values, also of repeated options."""
    options = read_options(line.split())
    assert options is not None
    expected = parse_options(line.split(), unexpected)
    assert options == expected


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "-h",
        "--port=0",
        "--prof kafka",
        "--port",
        "--port x",
        "--port 65536",
        "--node-id 1 --host -1",
        "--host --json",
        "--profile test",
        "--verbose",
        "server.properties",
        "--json yes",
    ],
)
def test_other_command_lines_are_left_to_argparse(line: str) -> None:
    """Abbreviations, `=`, the help, and whatever is an error."""
    assert read_options(line.split()) is None


def test_abbreviations_and_equal_signs_work() -> None:
    """As with every other program that uses argparse."""
    options = parse_options(["--prof", "dev", "--port=0", "--host", "-1"], unexpected)
    assert (options.profile, options.port, options.host) == ("dev", 0, "-1")
