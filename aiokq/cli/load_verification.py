"""LoadVerification: runs `verify_load` for `aiokq spark load --verify` and prints the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokq.cli.load_run import refused
from aiokq.cli.output import Json, Output

if TYPE_CHECKING:
    from aiokq.spark.loading.verify import Verification

__all__ = ["LoadVerification"]


class LoadVerification:
    """One verification of a load's target; each problem found is printed and sets exit code 1."""

    def __init__(
        self,
        out: Output,
        to: str,
        kafka: Mapping[str, str],
        dead_letter: str | None,
        checkpoint: str | None,
        table: str | None,
        catalog: Mapping[str, str],
    ) -> None:
        self._out = out
        self._to = to
        self._kafka = kafka
        self._dead_letter = dead_letter
        self._checkpoint = checkpoint
        self._table = table
        self._catalog = catalog

    def __call__(self) -> Verification:
        """Verify the target and print the problems; `print` prints the counts.

        Raises:
            KafkaError: see `verify_load`; the error names flags in place of options.
        """
        from aiokq.spark.loading.verify import verify_load

        with refused(usage=False):
            found = verify_load(
                self._to,
                kafka=self._kafka,
                dead_letter=self._dead_letter,
                checkpoint=self._checkpoint,
                table=self._table,
                catalog=self._catalog,
            )
        for problem in found.problems:
            self._out.trouble(problem)
        return found

    def print(self, found: Verification) -> None:
        """Print the notes, the verdict and the counts as text."""
        for note in found.notes:
            self._out.note(f"aiokq: {note}")
        dead = f" and {found.dead_letters} dead letters" * bool(found.dead_letters)
        gaps = f", {found.gaps} of them without a record (compaction, transactions)" * bool(
            found.gaps
        )
        verdict = "sound" if found.sound else "NOT SOUND"
        self._out.line(
            f"{self._to}: {verdict}; {found.rows} rows{dead} in {found.batches} batches, "
            f"of {found.offsets} offsets{gaps}"
        )

    def document(self, found: Verification) -> Json:
        """Return the result as a JSON document."""
        return {
            "to": self._to,
            "sound": found.sound,
            "batches": found.batches,
            "rows": found.rows,
            "dead_letters": found.dead_letters,
            "offsets": found.offsets,
            "gaps": found.gaps,
            "problems": list(found.problems),
            "notes": list(found.notes),
        }
