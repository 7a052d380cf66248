"""Config providers: values of settings that come from files and environment variables.

`${file:PATH:KEY}` is a value in a property file, `${env:NAME}` is an environment variable, and
`${dir:DIRECTORY:NAME}` is the text of a file, such as a secret that Kubernetes mounts.
`config.providers` defines the names before the first colon; `config.providers.NAME.class` is one of
Kafka's three classes. No class is loaded.

Source: Kafka ``AbstractConfig.resolveConfigVariables``, ``ConfigTransformer``,
``FileConfigProvider``, ``EnvVarConfigProvider``, ``DirectoryConfigProvider``; KIP-297, KIP-421.
Differences from Kafka: a missing key, environment variable or file of a directory, a path that is
not allowed, and a provider without a class are errors. Kafka keeps the text `${...}` as the value,
which may then be used as a password. Tests: ``tests/unit/core/test_config_providers.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from aiokq.core.errors import ConfigError
from aiokq.core.properties import parse_properties
from aiokq.core.regular_files import open_regular

__all__ = ["CONFIG_PROVIDERS", "is_of_provider", "resolve_variables"]

CONFIG_PROVIDERS: Final = "config.providers"
_PREFIX: Final = "config.providers."
_PACKAGE: Final = "org.apache.kafka.common.config.provider"

_VARIABLE: Final = re.compile(r"\$\{([^}:]*):(?:([^}:]*):)?([^}]*)\}")
"""`${provider:key}` or `${provider:path:key}`; a key may have colons."""

_Provider: TypeAlias = Callable[[str, str], str]
"""Takes a path and a key; returns the value. Raises LookupError or OSError if there is none."""


def is_of_provider(name: str) -> bool:
    """Whether a setting configures config providers."""
    return name == CONFIG_PROVIDERS or name.startswith(_PREFIX)


def resolve_variables(
    values: Mapping[str, object], *, environ: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Return settings with their variables replaced, and without the settings of providers.

    Surrounding blanks of a value with a variable are removed, because the text of a file often ends
    with a line break. Kafka removes them from every value.

    Args:
        values: settings by Kafka's names; only values of type str may have variables.
        environ: the environment variables; None for those of the process.

    Raises:
        ConfigError: a provider is not supported or is configured wrongly, or a variable has no
            value. The error contains neither the value of another setting nor a secret.
    """
    providers = _providers(values, os.environ if environ is None else environ)
    resolved = {name: value for name, value in values.items() if not is_of_provider(name)}
    for name, value in resolved.items():
        if isinstance(value, str) and "${" in value:
            text = _resolved(name, value, providers)
            resolved[name] = value if text == value else text.strip()
    return resolved


def _resolved(setting: str, text: str, providers: Mapping[str, _Provider]) -> str:
    def value_of(found: re.Match[str]) -> str:
        provider = providers.get(found[1])
        if provider is None:  # as in Kafka, the text is the value
            return found[0]
        try:
            return provider(found[2] or "", found[3])
        except LookupError as error:
            reason = str(error.args[0])
        except UnicodeDecodeError:
            reason = "the file is not UTF-8"
        except OSError as error:
            reason = f"cannot read {error.filename}: {error.strerror}"
        except ValueError:  # a path with a NUL character
            reason = "the path is not valid"
        raise ConfigError(f"{setting}: {found[0]} has no value: {reason}") from None

    return _VARIABLE.sub(value_of, text)


def _providers(values: Mapping[str, object], environ: Mapping[str, str]) -> Mapping[str, _Provider]:
    names = [name.strip() for name in str(values.get(CONFIG_PROVIDERS) or "").split(",")]
    found = {}
    for name in filter(None, names):
        setting = f"{_PREFIX}{name}.class"
        class_name = str(values.get(setting) or "")
        make = _MAKERS.get(class_name.strip())
        if make is None:
            known = ", ".join(_MAKERS)
            given = f"{setting}={class_name}" if class_name else f"{setting} is not set"
            raise ConfigError(f"{given}: config providers are Java classes; use one of {known}")
        prefix = f"{_PREFIX}{name}.param."
        parameters = {
            key.removeprefix(prefix): (key, str(value))
            for key, value in values.items()
            if key.startswith(prefix)
        }
        found[name] = make(parameters, environ)
    return found


def _file(parameters: Mapping[str, tuple[str, str]], environ: Mapping[str, str]) -> _Provider:
    allowed = _allowed_paths(parameters)
    files: dict[str, dict[str, str]] = {}

    def value_of(path: str, key: str) -> str:
        _check_allowed(path, allowed)
        if path not in files:
            files[path] = parse_properties(_text(path))
        if key not in files[path]:
            raise LookupError(f"{path} has no such key")
        return files[path][key]

    return value_of


def _directory(parameters: Mapping[str, tuple[str, str]], environ: Mapping[str, str]) -> _Provider:
    allowed = _allowed_paths(parameters)

    def value_of(path: str, key: str) -> str:
        _check_allowed(path, allowed)
        if not key or key in (".", "..") or os.path.basename(key) != key:
            raise LookupError("a name of a file in the directory is needed")
        return _text(os.path.join(path, key))

    return value_of


def _environment(
    parameters: Mapping[str, tuple[str, str]], environ: Mapping[str, str]
) -> _Provider:
    _check_parameters(parameters, "allowlist.pattern")
    setting, pattern = parameters.get("allowlist.pattern", ("", "(?s).*"))
    try:
        allowed = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{setting} is not a regular expression: {error}") from None

    def value_of(path: str, key: str) -> str:
        if path:
            raise LookupError("an environment variable has no path")
        if not allowed.fullmatch(key):
            raise LookupError(f"{setting} does not allow this variable")
        if key not in environ:
            raise LookupError("there is no such environment variable")
        return environ[key]

    return value_of


_MAKERS: Final[
    Mapping[str, Callable[[Mapping[str, tuple[str, str]], Mapping[str, str]], _Provider]]
] = {
    f"{_PACKAGE}.FileConfigProvider": _file,
    f"{_PACKAGE}.DirectoryConfigProvider": _directory,
    f"{_PACKAGE}.EnvVarConfigProvider": _environment,
}
"""Maps each class to a function that takes the parameters and the environment variables.

The parameters map a parameter's name, without the prefix, to the name and the value of its setting.
"""


def _check_parameters(parameters: Mapping[str, tuple[str, str]], known: str) -> None:
    for name, (setting, _) in parameters.items():
        if name != known:
            raise ConfigError(f"there is no setting {setting}: the only parameter is {known}")


def _allowed_paths(parameters: Mapping[str, tuple[str, str]]) -> tuple[str, ...] | None:
    """Return the paths in `allowed.paths`; None if all paths are allowed."""
    _check_parameters(parameters, "allowed.paths")
    setting, text = parameters.get("allowed.paths", ("", ""))
    paths = tuple(os.path.normpath(path.strip()) for path in text.split(",") if path.strip())
    for path in paths:
        if not os.path.isabs(path) or not os.path.exists(path):
            problem = "does not exist" if os.path.isabs(path) else "is not absolute"
            raise ConfigError(f"{setting}: the path {path} {problem}")
    return paths or None


def _check_allowed(path: str, allowed: tuple[str, ...] | None) -> None:
    if not path:
        raise LookupError("a path is needed")
    if allowed is not None:
        normal = os.path.normpath(path)
        if not any(normal == one or normal.startswith(one.rstrip("/") + "/") for one in allowed):
            raise LookupError("allowed.paths does not allow this path")


def _text(path: str) -> str:
    descriptor, _ = open_regular(path, os.O_RDONLY)
    with open(descriptor, "rb") as file:
        return file.read().decode()
