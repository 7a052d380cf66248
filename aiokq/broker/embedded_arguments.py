"""Checks of the arguments of `EmbeddedCluster`, and the errors that arguments cause at a start.

Tests: ``tests/unit/broker/test_node.py``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from aiokq.broker.config.authorizer_settings import AUTHORIZER, STANDARD_AUTHORIZER
from aiokq.broker.config.listeners import ListenerFailed, Listeners, configured_listeners
from aiokq.broker.config.roles import check_quorum, check_roles, configured_node_id
from aiokq.broker.config.setting import PASSWORD
from aiokq.broker.config.settings import SETTINGS, broker_settings, log_directories
from aiokq.core.config_text import config_text
from aiokq.core.environment import Environment
from aiokq.core.errors import ConfigError, KafkaStorage
from aiokq.core.named_tuple import NamedTuple

if TYPE_CHECKING:
    from ssl import SSLContext

    from aiokq.broker.config.listeners import Endpoint
    from aiokq.broker.config.settings import BrokerSettings
    from aiokq.broker.gate import Authorizer
    from aiokq.broker.security.authorization.caller_authorizer import Authorize
    from aiokq.core.acls import Acl

__all__ = [
    "OPTIONAL_PATH",
    "NodeArguments",
    "authorizer_of",
    "checked_acls",
    "callable_argument",
    "configs_text",
    "name_text",
    "checked_users",
    "new_features",
    "node_arguments",
    "path_text",
    "start_error",
    "unknown_argument",
]

_ARGUMENTS: Final = (
    *("data_dir", "port", "profile", "settings", "features", "restore_from"),
    *("acls", "authorize", "quota"),
    *("users", "authenticate", "ssl_context"),
)

_SNAPSHOTS: Final = "metadata.log.max.record.bytes.between.snapshots"

EPHEMERAL_SNAPSHOT_BYTES: Final = 1024 * 1024
"""Bytes of metadata records after which a cluster without a data directory writes a snapshot.

A test run may reset such a cluster thousands of times, and each reset appends metadata records.
Snapshots allow the metadata log to delete older segments. Its files then stay small, which matters
if the file system is in memory.
"""

_MISNAMED: Final = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG),
    *(errno.EACCES, errno.EPERM, errno.EROFS),
}
"""Error numbers of a path that cannot be a writable directory."""

F = TypeVar("F")

OPTIONAL_PATH: Final = "a directory (str or os.PathLike) or None"


class NodeArguments(NamedTuple):
    """The arguments with which the node of a cluster is created.

    Attributes:
        node_id: id of the node; None for the id stored in the data directory, or 0 if it is new.
    """

    settings: BrokerSettings
    listeners: Listeners
    node_id: int | None


def node_arguments(
    brokers: int,
    *,
    is_ephemeral: bool,
    port: int,
    profile: str,
    settings: Mapping[str, object] | None,
    environment: Environment | None,
    has_acls: bool = False,
    users: Mapping[str, str] | None = None,
    own_check: bool = False,
    ssl_context: SSLContext | None = None,
) -> NodeArguments:
    """Check arguments of `EmbeddedCluster`; return the arguments of its node.

    Args:
        is_ephemeral: whether the caller gave no data directory.
        has_acls: whether the caller gave ACLs; the settings then need not name an authorizer.
        users: the result of `checked_users`.
        own_check: whether the caller gave a function that checks passwords and tokens.
        ssl_context: the context of the listeners with TLS.

    Raises:
        ConfigError: an argument or a setting is unknown, out of range, of the wrong type, or
            contradictory.
    """
    if isinstance(brokers, Mapping):
        raise ConfigError("pass broker settings as settings=")
    if type(brokers) is not int or brokers != 1:
        raise ConfigError(
            f"brokers must be 1, not {brokers!r}: an embedded cluster has one broker, "
            "because brokers do not replicate yet"
        )
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65535:
        raise ConfigError(
            f"port must be a number from 1 to 65535, or 0 for a free port, not {port!r}"
        )
    if environment is not None and not isinstance(environment, Environment):
        raise ConfigError(
            "environment must be an Environment (aiokq.core.environment) or None, not "
            f"{environment!r}"
        )
    if is_ephemeral and (settings is None or isinstance(settings, Mapping)):
        given = {} if settings is None else settings
        if not any(str(name).replace("_", ".") == _SNAPSHOTS for name in given):
            settings = {**given, _SNAPSHOTS: EPHEMERAL_SNAPSHOT_BYTES}
    if has_acls and (settings is None or isinstance(settings, Mapping)):
        given = {} if settings is None else settings
        if not any(str(name).replace("_", ".") == AUTHORIZER for name in given):
            settings = {**given, AUTHORIZER: STANDARD_AUTHORIZER}
    has_logins = users is not None or own_check
    if ssl_context is not None:
        from aiokq.broker.config.login_settings import with_tls

        _check_context(ssl_context)
        settings = with_tls(settings, has_logins=has_logins)
    if has_logins:
        from aiokq.broker.config.login_settings import with_logins

        settings = with_logins(settings, users, own_check=own_check)
    checked = broker_settings(settings, profile=profile)
    if log_directories(checked):
        raise ConfigError(
            "log.dirs is a setting of `aiokq broker`: pass data_dir= to an embedded cluster"
        )
    check_roles(checked)
    listeners = _listeners(checked, port, own_check=own_check, ssl_context=ssl_context)
    node_id = configured_node_id(checked)
    check_quorum(checked, listeners, node_id)
    return NodeArguments(checked, listeners, node_id)


def new_features(features: Mapping[str, int] | None) -> Mapping[str, int] | None:
    """Return the levels above 0 of a new cluster's features; None if `features` is None.

    Raises:
        ConfigError: a feature is unknown, or a level is not supported.
    """
    if features is None:
        return None
    # Most clusters are created without `features`, and need not wait for these imports.
    from aiokq.broker.metadata.image.features import KRAFT_VERSION, supported_ranges
    from aiokq.broker.metadata.stopped_broker.formatting import format_levels

    if not isinstance(features, Mapping):
        raise ConfigError(f"features must be a mapping of names to levels, not {features!r}")
    ranges = supported_ranges()
    del ranges[KRAFT_VERSION]  # its level depends on the kind of quorum
    for name, level in features.items():
        if name not in ranges:
            raise ConfigError.unknown(f"unknown feature {name!r} in features=", name, list(ranges))
        low, high = ranges[name]
        if type(level) is not int or not low <= level <= high:
            raise ConfigError(f"{name} has levels from {low} to {high}, not {level!r}")
    levels = format_levels(None, features, dynamic=False)
    return {name: level for name, level in levels.items() if level}


def checked_acls(acls: Iterable[str | Acl] | None, settings: BrokerSettings) -> tuple[Acl, ...]:
    """Return `acls` as `Acl` objects; an item may be a line of text.

    Raises:
        ConfigError: a line has the wrong form, or the settings name an authorizer that ignores
            ACLs.
    """
    if acls is None:
        return ()
    from aiokq.core.acls import Acl, parse_acl

    if isinstance(acls, str | Acl) or not isinstance(acls, Iterable):
        raise ConfigError(
            "acls must be a list of lines such as ['User:alice Allow Read Topic:orders'], not "
            f"{acls!r}"
        )
    if not settings.authorizer_class_name:
        raise ConfigError(
            f"acls have no effect with {AUTHORIZER} set to nothing: remove one of the two"
        )
    found: list[Acl] = []
    for each in acls:
        found += (each,) if isinstance(each, Acl) else parse_acl(each)
    return tuple(found)


def authorizer_of(
    authorize: Authorize | None, acls: object, settings: BrokerSettings
) -> Authorizer | None:
    """Return the authorizer that calls `authorize`; None if `authorize` is None.

    Raises:
        ConfigError: `authorize` cannot be called, or the caller also gave ACLs or named another
            authorizer.
    """
    if authorize is None:
        return None
    if not callable(authorize):
        raise ConfigError(
            "authorize must be a function (principal, host, operation, resource) or None, not "
            f"{authorize!r}"
        )
    if acls is not None or settings.authorizer_class_name:
        other = "acls" if acls is not None else AUTHORIZER
        raise ConfigError(f"authorize and {other} exclude each other: one of them decides")
    from aiokq.broker.security.authorization.caller_authorizer import AuthorizationCallable

    return AuthorizationCallable(authorize)


def checked_users(users: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the passwords of users by name; None if `users` is None.

    Raises:
        ConfigError: `users` is not a mapping of non-empty names to non-empty passwords. No message
            contains a password.
    """
    if users is None:
        return None
    if not isinstance(users, Mapping):
        raise ConfigError("users must be a mapping of user names to passwords")
    for name, password in users.items():
        if not isinstance(name, str) or not name or "\0" in name:
            raise ConfigError(f"users: {name!r} is not the name of a user")
        if not isinstance(password, str) or not password or "\0" in password:
            raise ConfigError(f"users: the password of {name!r} is not a text that is not empty")
        try:
            (name + password).encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"users: {name!r} or its password has a character that is not Unicode"
            ) from None
    return dict(users)


def _check_context(context: SSLContext) -> None:
    import ssl  # few clusters have TLS

    if not isinstance(context, ssl.SSLContext):
        raise ConfigError(f"ssl_context must be an ssl.SSLContext or None, not {context!r}")
    if context.protocol is ssl.PROTOCOL_TLS_CLIENT:
        raise ConfigError(
            "ssl_context is one of a client: make it with ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) "
            "or ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)"
        )


def _listeners(
    settings: BrokerSettings, port: int, *, own_check: bool, ssl_context: SSLContext | None
) -> Listeners:
    if settings.listeners is None:
        return configured_listeners(settings, default_port=port, own_check=own_check)
    return configured_listeners(
        settings, port=port or None, own_check=own_check, ssl_context=ssl_context
    )


def unknown_argument(unknown: Mapping[str, object]) -> ConfigError:
    """Return the error for the first of these unknown keyword arguments."""
    name, value = next(iter(unknown.items()))
    setting = name.replace("_", ".")
    if setting in SETTINGS:
        shown = "..." if SETTINGS[setting].kind == PASSWORD else repr(value)
        return ConfigError(f"{name} is a broker setting: write settings={{{setting!r}: {shown}}}")
    return ConfigError.unknown(
        f"unknown argument {name!r}; pass broker settings as settings={{...}}",
        name,
        [*_ARGUMENTS, *SETTINGS],
    )


def callable_argument(argument: str, value: F) -> F:
    """Return a function that the user has given, or None.

    Raises:
        ConfigError: `value` cannot be called; the message names the argument.
    """
    if value is not None and not callable(value):
        raise ConfigError(
            f"{argument} must be a function, a coroutine function or None, not {value!r}"
        )
    return value


def path_text(
    argument: str, path: str | os.PathLike[str], what: str = "a directory (str or os.PathLike)"
) -> str:
    """Return a path as text.

    Args:
        what: description of the permitted values, for the message.

    Raises:
        ConfigError: `path` is not a path; the message names the argument.
    """
    try:
        text = os.fspath(path)
        valid = isinstance(text, str) and text != "" and b"\0" not in os.fsencode(text)
    except (TypeError, UnicodeEncodeError):
        valid = False
    if not valid:
        raise ConfigError(f"{argument} must be the path of {what}, not {path!r}")
    return text


def name_text(argument: str, value: str, what: str) -> str:
    """Return `value` if it is a str.

    Raises:
        ConfigError: `value` is not a str; the message names the argument.
    """
    if not isinstance(value, str):
        raise ConfigError(f"{argument} must be the name of {what} (str), not {value!r}")
    return value


def configs_text(configs: Mapping[str, str | int | float | bool] | None) -> dict[str, str | None]:
    """Return topic settings with their values as text in Kafka's syntax; {} for None.

    Raises:
        TypeError: `configs` is not a mapping whose keys are str, or a value has the wrong type.
        ValueError: a value is NaN or infinite.
    """
    if configs is None:
        return {}
    if not isinstance(configs, Mapping) or not all(isinstance(name, str) for name in configs):
        raise TypeError(
            f"configs must be a mapping of Kafka's setting names to values, not {configs!r}"
        )
    return {name: config_text(value) for name, value in configs.items()}


def start_error(
    error: BaseException, listeners: Listeners, data_dir: str | None
) -> ConfigError | None:
    """Return a ConfigError for a start that failed because of an argument.

    These failures are a port that is in use, and a `data_dir` that cannot be a writable directory.
    Returns None for any other failure.
    """
    if isinstance(error, ListenerFailed) and error.errno == errno.EADDRINUSE:
        return ConfigError(_port_in_use(error.endpoint, listeners))
    if isinstance(error, KafkaStorage) and _is_misnamed(error) and data_dir:
        return ConfigError(f"data_dir={data_dir!r}: {error.message}")
    return None


def _port_in_use(endpoint: Endpoint, listeners: Listeners) -> str:
    if len(listeners.opened) == 1:
        return f"port {endpoint.port} is in use: choose another port, or port=0 for a free one"
    return (
        f"port {endpoint.port} of listener {endpoint.name} is in use: choose another port, or 0 "
        "for a free one"
    )


def _is_misnamed(error: KafkaStorage) -> bool:
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _MISNAMED
