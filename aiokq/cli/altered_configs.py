"""Output of the result of altering configs, for `cluster alter` and `groups alter`.

Tests: ``tests/unit/cli/test_cluster_configs.py``, ``tests/unit/cli/test_groups.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokq.cli.output import Json, error_json

if TYPE_CHECKING:
    from aiokq.cli.output import Output
    from aiokq.core.errors import KafkaError

__all__ = ["altered_json"]


def altered_json(
    out: Output, name: str, error: KafkaError | None, *, dry_run: bool
) -> dict[str, Json]:
    """Print the outcome for a resource as a line, and return it for a JSON document.

    An error is always printed. A success is printed only if `out` does not print JSON.
    """
    if error is not None:
        out.problem(name, error)
    elif not out.as_json:
        out.line(f"{name}: {'could be altered' if dry_run else 'altered'}")
    return {"altered": error is None and not dry_run, "error": error_json(error)}
