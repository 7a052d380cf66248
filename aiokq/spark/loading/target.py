"""Target: the directory of a load, with its files, locks and checks.

    DIR/batch_id=0/part-00000-0-0.parquet    rows, if the format is Parquet
    DIR/_aiokq_load.json                     options that every run must share
    DIR/_aiokq_load.lock                     the process that is loading
    DIR/_aiokq_manifest/0.json               offsets and files of batch 0
    DIR/_aiokq_checkpoint/                   Spark's checkpoint of the query
    DIR/_aiokq_temporary/                    unfinished batches

Spark and other readers of directories skip names that begin with an underscore.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from aiokq.errors import ConfigError
from aiokq.spark.durable_files import sync_directory, write_atomically
from aiokq.spark.loading.checkpoint import Checkpoint
from aiokq.spark.loading.directory_lock import LOCK, DirectoryLock, Held
from aiokq.spark.loading.manifest import Manifests
from aiokq.spark.loading.options import LoadOptions, OptionError

__all__ = ["LOAD", "Identity", "Target"]

LOAD: Final = "_aiokq_load.json"
MANIFESTS: Final = "_aiokq_manifest"
CHECKPOINT: Final = "_aiokq_checkpoint"
TEMPORARY: Final = "_aiokq_temporary"

Identity: TypeAlias = Mapping[str, object]
"""Options that must not change from one run of a load to the next."""


class Target:
    """The directory of a load.

    Args:
        root: absolute path; created by `opened`.
        dead_letters: directory for records that cannot be decoded; None if values are not decoded.
        checkpoint: checkpoint of the query; None for a checkpoint within `root`.
    """

    def __init__(
        self, root: Path, dead_letters: Path | None = None, checkpoint: Path | None = None
    ) -> None:
        self.root = root
        self.dead_letters = dead_letters
        self.checkpoint = Checkpoint(root / CHECKPOINT if checkpoint is None else checkpoint)
        self.manifests = Manifests(root / MANIFESTS)

    @classmethod
    def of(cls, options: LoadOptions) -> Target:
        """Return the target of a load.

        With ``value_format="bytes"`` it has no directory for dead letters, because values are not
        decoded.
        """
        dead_letters = None if options.value_format == "bytes" else options.dead_letter_root
        return cls(options.root, dead_letters, options.checkpoint_root)

    def identity(self) -> Identity | None:
        """Return the options that a load has written to this directory; None if there are none.

        Raises:
            ConfigError: the file is damaged.
        """
        path = self.root / LOAD
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise ConfigError(f"{path}: the file is damaged: {error}") from error
        if not isinstance(found, dict):
            raise ConfigError(f"{path}: the file is damaged")
        return found

    @contextmanager
    def opened(self, identity: Identity) -> Iterator[None]:
        """Lock target, checkpoint and dead letters, and delete leftovers of killed loads.

        Raises:
            OptionError: a directory cannot be written, is in use, has other files, or belongs to
                another load.
            ConfigError: a file of an earlier load is damaged.
        """
        with ExitStack() as locks:
            locks.enter_context(closing(_locked(self.root, "to")))
            with _reported(self.root):
                self._claim(identity)
            # Before the first batch, only this lock prevents two loads from sharing a checkpoint.
            locks.enter_context(closing(_locked(self.checkpoint.directory, "checkpoint")))
            if self.dead_letters is not None:
                locks.enter_context(closing(_locked(self.dead_letters, "dead_letter")))
            with _reported(self.root):
                self.checkpoint.mend()
                self._check_checkpoint()
                self._claim_dead_letters()
                self._sweep()
            yield

    def temporary(self, name: str) -> Path:
        """Return the directory of an unfinished batch."""
        return self.root / TEMPORARY / name

    def temporary_dead_letters(self, name: str) -> Path | None:
        """Return the directory for the dead letters of an unfinished batch.

        The directory is on the file system of the final directory, so that files can be renamed.
        """
        return None if self.dead_letters is None else self.dead_letters / TEMPORARY / name

    def sync_temporary(self) -> None:
        """Sync the temporary directories, so that the names of unfinished batches are on disk."""
        for root in (self.root, self.dead_letters):
            if root is not None and (root / TEMPORARY).is_dir():
                sync_directory(root / TEMPORARY)
                sync_directory(root)

    def _claim(self, identity: Identity) -> None:
        before = self.identity()
        # Tuples become lists, as in the file.
        now: Identity = json.loads(json.dumps(identity))
        if before == now:
            return
        strange = [path.name for path in self.root.iterdir() if not self._is_of_claims(path)]
        if strange and before is None:
            raise OptionError(
                "to",
                f"{self.root}: the directory has other files ({min(strange)} ...): give a new "
                "or an empty directory",
            )
        # An earlier load does not count if it never began, for example because Spark refused the
        # schema or did not start. Then its options are replaced.
        if before is not None and (strange or self.checkpoint.query_id() is not None):
            self._refuse_other(before, now)
        write_atomically(self.root / LOAD, json.dumps(identity, indent=1) + "\n")

    def _is_of_claims(self, path: Path) -> bool:
        """Whether a file may be in the directory before a load begins."""
        if path.name == CHECKPOINT and path.is_dir():
            return all(file.name == LOCK for file in path.iterdir())
        return path.name in (LOCK, LOAD, f".{LOAD}.unfinished")

    def _refuse_other(self, before: Identity, now: Identity) -> None:
        for option in {**before, **now}:
            if before.get(option) != now.get(option):
                raise OptionError(
                    option,
                    f"{self.root} was loaded with {json.dumps(before.get(option))}, not "
                    f"{json.dumps(now.get(option))}: load to another directory",
                )

    def _claim_dead_letters(self) -> None:
        """Mark the directory of dead letters for this load; refuse the directory of another load.

        Two loads cannot share the directory, because their batches have the same numbers.
        """
        directory = self.dead_letters
        if directory is None:
            return
        try:
            path = directory / LOAD
            if not path.exists():
                text = json.dumps({"dead_letters_of": str(self.root)}, indent=1)
                write_atomically(path, text + "\n")
            of = json.loads(path.read_text(encoding="utf-8")).get("dead_letters_of")
        except OSError as error:
            raise OptionError("dead_letter", f"{directory}: {_reason(error)}") from error
        except (AttributeError, ValueError) as error:
            raise ConfigError(f"{path}: the file is damaged: {error}") from error
        if of != str(self.root):
            raise OptionError(
                "dead_letter",
                f"{directory}: the directory has the dead letters of another load ({of}): give "
                "another directory",
            )

    def _check_checkpoint(self) -> None:
        """Refuse a checkpoint that is missing, of another query, or ahead of the manifests.

        With another query's checkpoint or none, new batches would have the numbers of loaded
        batches, but other records. If the checkpoint is ahead, the target would lack batches.
        """
        query = self.checkpoint.query_id()
        # Only the latest published manifest is read, because a target may have millions of
        # manifests.
        prepared = self.manifests.prepared()
        known = prepared or list(itertools.islice(self.manifests.latest(), 1))
        if known and known[-1].query != query:
            raise OptionError(
                "checkpoint",
                f"{self.checkpoint.directory} is "
                + ("missing" if query is None else f"of query {query}")
                + f", {self.root} was loaded by query {known[-1].query}: give "
                "the checkpoint of that query, or load to another directory",
            )
        last = self.checkpoint.last()
        if known and last is not None and last > known[-1].batch:
            raise OptionError(
                "checkpoint",
                f"{self.checkpoint.directory} is at batch {last}, {self.root} has batches to "
                f"{known[-1].batch}, as after a restore: the batches between would be missing; "
                "load to another directory",
            )
        if not known and query is not None and self.checkpoint.positions() is not None:
            raise OptionError(
                "checkpoint",
                f"{self.checkpoint.directory} belongs to a query that has loaded to another "
                f"directory than {self.root}: {self.root} would lack the records in that directory",
            )

    def _sweep(self) -> None:
        """Delete leftovers of killed loads, except batches whose files are complete."""
        kept = {manifest.temporary for manifest in self.manifests.prepared()}
        for root in (self.root, self.dead_letters):
            if root is None or not (root / TEMPORARY).is_dir():
                continue
            for path in (root / TEMPORARY).iterdir():
                if path.name not in kept:
                    shutil.rmtree(path, ignore_errors=True)


def _locked(directory: Path, option: str) -> DirectoryLock:
    """Lock a directory and return the lock."""
    try:
        return DirectoryLock(directory)
    except Held as held:
        raise OptionError(
            option,
            f"{directory}: another load ({held.holder}) is using it; wait for it, or stop it",
        ) from held
    except OSError as error:
        raise OptionError(option, f"{directory}: {_reason(error)}") from error


@contextmanager
def _reported(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OptionError("to", f"{root}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return error.strerror or os.strerror(error.errno or 0)
