"""Options of Kafka's own tools are refused with the name of aiokq's option."""

from __future__ import annotations

import re
from typing import Any

import pytest

from aiokq.cli.app import command_tree
from aiokq.cli.kafka_options import KAFKA_OPTIONS, instead_of
from tests.unit.cli.harness import CommandLine

ROWS = [(command, option) for command, rows in KAFKA_OPTIONS.items() for option in rows]


def options_of(command: str) -> set[str]:
    """Return the names of all options of a command."""
    found: Any = command_tree()
    for word in command.split():
        found = found.commands[word]
    return {name for each in found.params for name in (*each.opts, *each.secondary_opts)}


@pytest.mark.parametrize(("command", "option"), ROWS)
def test_what_is_suggested_exists_and_what_is_explained_does_not(command: str, option: str) -> None:
    """A hint to a renamed option would mislead users."""
    assert option not in options_of(command)
    instead = instead_of(command, option)
    for mentioned in re.findall(r"aiokq ([a-z-]+(?: [a-z-]+)?)", instead):
        words = mentioned.split()
        known = command_tree().commands
        assert words[0] in known
        if words[1:] and hasattr(known[words[0]], "commands"):
            assert words[1] in known[words[0]].commands
            command = mentioned
    for name in re.findall(r"--[a-z-]+", instead):
        assert name in options_of(command)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("consume", "t", "--from-beginning"), "use --from beginning, which is the default"),
        (("consume", "--topic=t"), "the topic is an argument: aiokq consume TOPIC"),
        (("produce", "t", "--bootstrap-server", "h:1"), "use --bootstrap-servers"),
        (("topics", "--list"), "use aiokq topics list"),
        (("groups", "reset", "g", "--all-topic"), "did you mean --all-topics?"),
    ],
)
def test_the_answer_is_one_line_and_exit_code_2(
    alone: CommandLine, arguments: tuple[str, ...], words: str
) -> None:
    """Regression: users who typed --from-beginning read only that there is no such option."""
    done = alone(*arguments, servers=None)
    assert done.code == 2
    assert words in done.complaint


def test_what_is_like_nothing_gets_no_suggestion(alone: CommandLine) -> None:
    """A wrong hint is worse than none."""
    done = alone("consume", "t", "--nope", servers=None)
    assert done.complaint == "aiokq consume: No such option: --nope (see aiokq consume --help)"


def test_a_topic_config_given_as_a_file_is_explained(alone: CommandLine) -> None:
    """kafka-topics takes --config NAME=VALUE."""
    done = alone("topics", "create", "t", "--config", "retention.ms=1")
    assert "a config of a topic or a group is given as --set NAME=VALUE" in done.complaint
