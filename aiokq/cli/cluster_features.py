"""`aiokq cluster features`: describe the features of a cluster, upgrade and downgrade them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from aiokq.cli.admin_command import AdminCall, admin_command
from aiokq.cli.options import NOT_DONE, DryRun, Execute, executing, named_values
from aiokq.cli.output import Output, error_json
from aiokq.core import limits
from aiokq.core.numbers import parse_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiokq.admin.client import Admin
    from aiokq.admin.features import FeatureUpdate, FeatureUpdated, UpgradeType

__all__ = ["features"]

FORM: Final = "NAME=LEVEL"


@admin_command
def features(
    call: AdminCall,
    upgrades: Annotated[
        list[str] | None,
        typer.Option("--upgrade", metavar=FORM, help="Raise a feature to a level; repeatable."),
    ] = None,
    downgrades: Annotated[
        list[str] | None,
        typer.Option(
            "--downgrade",
            metavar=FORM,
            help="Lower a feature to a level, 0 for off; repeatable.",
        ),
    ] = None,
    release_version: Annotated[
        str | None,
        typer.Option(
            "--release-version",
            metavar="VERSION",
            help="Raise all features that the cluster supports to the levels of a release of "
            "Kafka, such as 4.2 or 4.0-IV3.",
        ),
    ] = None,
    unsafe: Annotated[
        bool,
        typer.Option("--unsafe", help="Downgrade even if metadata is lost."),
    ] = False,
    dry_run: DryRun = False,
    execute: Execute = False,
) -> None:
    """Describe the features of the cluster, or change their levels.

    Without --execute the cluster only validates a change; the validation needs Kafka 3.3 or later.
    The level of metadata.version may be given by its name, such as 4.0-IV3. kraft.version cannot be
    lowered again.
    """
    do_it = executing(dry_run=dry_run, execute=execute)
    updates = _updates(upgrades, downgrades, release_version, unsafe=unsafe)
    if release_version is not None:
        call.run(lambda admin: _update_to_release(admin, call.out, updates, do_it=do_it))
    elif updates:
        call.run(lambda admin: _update(admin, call.out, updates, do_it=do_it))
    elif dry_run or execute:
        raise typer.BadParameter(
            "nothing to change: give --upgrade, --downgrade or --release-version"
        )
    else:
        call.run(lambda admin: _describe(admin, call.out))


def _updates(
    upgrades: list[str] | None,
    downgrades: list[str] | None,
    release_version: str | None,
    *,
    unsafe: bool,
) -> dict[str, FeatureUpdate]:
    """Return the feature updates that the options describe.

    Raises:
        typer.BadParameter: the options contradict each other, or a text cannot be parsed.
    """
    from aiokq.admin.features import FeatureUpdate

    if unsafe and not downgrades:
        raise typer.BadParameter("--unsafe is for --downgrade")
    if release_version is not None:
        if upgrades or downgrades:
            raise typer.BadParameter(
                "--release-version sets all features: it excludes --upgrade and --downgrade"
            )
        return _of_release(release_version)
    options: list[tuple[list[str] | None, str, UpgradeType]] = [
        (upgrades, "--upgrade", "upgrade"),
        (downgrades, "--downgrade", "unsafe_downgrade" if unsafe else "safe_downgrade"),
    ]
    found: dict[str, FeatureUpdate] = {}
    for texts, flag, kind in options:
        for name, text in named_values(texts, flag, FORM):
            if name in found:
                raise typer.BadParameter(f"{name} is given twice")
            found[name] = FeatureUpdate(_level(name, text, flag), kind)
    return found


def _level(name: str, text: str, flag: str) -> int:
    from aiokq.broker.metadata.image.features import METADATA_VERSION, METADATA_VERSIONS

    if name == METADATA_VERSION:
        for level, known in METADATA_VERSIONS.items():
            if known == text:
                return level
    least = 1 if flag == "--upgrade" else 0
    try:
        level = parse_number(text, limits.INT16_MAX)
    except ValueError:
        level = -1
    if level < least:
        raise typer.BadParameter(
            f"{flag} needs {FORM}, with a level from {least} to {limits.INT16_MAX}, not "
            f"{name}={text[:40]}"
        )
    return level


def _of_release(text: str) -> dict[str, FeatureUpdate]:
    """Return upgrades to the levels that Kafka's tools set for a release, except levels of 0.

    Source: Kafka `FeatureCommand.java`.
    """
    from aiokq.admin.features import FeatureUpdate
    from aiokq.broker.metadata.image.features import FEATURES, METADATA_VERSION, release_version
    from aiokq.core.errors import ConfigError

    try:
        metadata_version = release_version(text)
    except ConfigError as error:
        raise typer.BadParameter(f"--release-version: {error.message}") from None
    levels = {METADATA_VERSION: metadata_version} | {
        name: feature.default_at(metadata_version) for name, feature in FEATURES.items()
    }
    return {name: FeatureUpdate(level) for name, level in levels.items() if level}


async def _update_to_release(
    admin: Admin, out: Output, updates: Mapping[str, FeatureUpdate], *, do_it: bool
) -> None:
    """Update metadata.version, and those other features of a release that the cluster supports.

    A feature that the cluster does not support is left out, because otherwise the cluster would
    refuse the whole request.
    """
    from aiokq.broker.metadata.image.features import METADATA_VERSION

    names = {METADATA_VERSION, *(await admin.describe_features()).supported_features}
    supported = {name: update for name, update in updates.items() if name in names}
    left_out = [name for name in updates if name not in names]
    await _update(admin, out, supported, do_it=do_it, left_out=left_out)


async def _update(
    admin: Admin,
    out: Output,
    updates: Mapping[str, FeatureUpdate],
    *,
    do_it: bool,
    left_out: Sequence[str] = (),
) -> None:
    done = await admin.update_features(updates, validate_only=not do_it)
    _complain(out, done)
    if out.as_json:
        out.document(
            {
                "features": [
                    {
                        "name": name,
                        "level": updates[name].max_version_level,
                        "upgrade_type": updates[name].upgrade_type,
                        "error": error_json(result.error),
                    }
                    for name, result in done.items()
                ],
                "left_out": list(left_out),
                "executed": do_it,
            }
        )
        return
    for name, result in done.items():
        if result.error is None:
            what = "is now at level" if do_it else "can be changed to level"
            out.line(f"{name}: {what} {_text(name, updates[name].max_version_level)}")
    for name in left_out:
        out.line(f"{name}: left out, because the cluster does not support it")
    if not do_it and not out.exit_code:
        out.line(NOT_DONE)


def _complain(out: Output, done: Mapping[str, FeatureUpdated]) -> None:
    """Print each error once for all features that have it.

    Kafka 4 refuses all updates of a request with the same error.
    """
    by_message: dict[str, list[str]] = {}
    for name, result in done.items():
        if result.error is not None:
            by_message.setdefault(result.error.message, []).append(name)
    for names in by_message.values():
        error = done[names[0]].error
        assert error is not None
        out.problem(", ".join(names), error)


async def _describe(admin: Admin, out: Output) -> None:
    found = await admin.describe_features()
    names = sorted({*found.supported_features, *found.finalized_features})
    levels = {
        name: found.finalized_features[name].max_version_level
        if name in found.finalized_features
        else None
        for name in names
    }
    if out.as_json:
        out.document(
            {
                "epoch": found.finalized_features_epoch,
                "features": [
                    {
                        "name": name,
                        "finalized_level": levels[name],
                        "supported_min": supported.min_version if supported else None,
                        "supported_max": supported.max_version if supported else None,
                    }
                    for name in names
                    for supported in (found.supported_features.get(name),)
                ],
            }
        )
        return
    rows = []
    for name in names:
        level, supported = levels[name], found.supported_features.get(name)
        rows.append(
            (
                name,
                None if level is None else _text(name, level),
                None if supported is None else _text(name, supported.min_version),
                None if supported is None else _text(name, supported.max_version),
            )
        )
    out.table(("feature", "level", "supported from", "to"), rows)


def _text(name: str, level: int) -> str:
    from aiokq.broker.metadata.image.features import METADATA_VERSION, metadata_version_text

    return metadata_version_text(level) if name == METADATA_VERSION else str(level)
