"""Parser of `sasl.jaas.config`: login modules with their options, in the syntax of JAAS.

No class is loaded: the name of a module only selects options that aiokq knows, and unknown modules
are refused. Options may be passwords, so no error and no `repr` contains the value of an option.

A client and a broker import this module only if SASL is configured.

Source: Kafka ``JaasConfig.java`` and ``JaasContext.java``, which read the text with Java's
``StreamTokenizer``. Differences: an unclosed quote is an error here, while in Kafka the end of the
line closes the quote; and Kafka accepts all modules but a few. Tests:
``tests/unit/core/test_jaas.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from aiokq.core.errors import ConfigError
from aiokq.core.named_tuple import NamedTuple

__all__ = [
    "BROKER_MODULES",
    "CLIENT_MODULES",
    "KERBEROS",
    "OAUTHBEARER",
    "PLAIN",
    "SCRAM",
    "LoginModule",
    "jaas_text",
    "login_module",
    "parse_jaas",
]

PLAIN: Final = "PlainLoginModule"
SCRAM: Final = "ScramLoginModule"
OAUTHBEARER: Final = "OAuthBearerLoginModule"
KERBEROS: Final = "Krb5LoginModule"

BROKER_MODULES: Final = (PLAIN, SCRAM, OAUTHBEARER)
CLIENT_MODULES: Final = (PLAIN, SCRAM, OAUTHBEARER, KERBEROS)

_SECURITY: Final = "org.apache.kafka.common.security"
_CLASSES: Final[Mapping[str, str]] = {
    f"{_SECURITY}.plain.PlainLoginModule": PLAIN,
    f"{_SECURITY}.scram.ScramLoginModule": SCRAM,
    f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule": OAUTHBEARER,
    "com.sun.security.auth.module.Krb5LoginModule": KERBEROS,
}
_SHADED: Final = "kafkashaded."
"""Databricks' prefix of the names of Kafka's classes."""

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")

_MAX_CHARACTERS: Final = 1_000_000
"""The longest text that is read.

The limit is high, because a broker's PlainLoginModule may have an option for each user.
"""

_TOKEN: Final = re.compile(
    r"""
    [\x00-\x20]++ | //[^\r\n]*+ | /\*(?s:.*?)\*/      # blanks and comments
    | (?P<word> [A-Za-z0-9._$\-\xa0-\U0010ffff]++ )
    | " (?P<double> (?: [^"\\\r\n]++ | \\(?s:.) )*+ ) "
    | ' (?P<single> (?: [^'\\\r\n]++ | \\(?s:.) )*+ ) '
    | (?P<sign> [=;] )
    """,
    re.VERBOSE,
)
_NUMBER: Final = "-.0123456789"
"""A word that begins with one of these is a number to Java, and cannot be an option's value."""

_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|(?s:.))")
_NAMED: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_CLASS_NAME: Final = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+")


class LoginModule(NamedTuple):
    """A login module with its options.

    Attributes:
        name: the name of the class without its package, one of the constants of this module.
        control_flag: `required`, `requisite`, `sufficient` or `optional`.
        options: the options in the order of the text; the last value of a repeated option counts.
    """

    name: str
    control_flag: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<LoginModule {self.name}>"


class _Token(NamedTuple):
    """A token of the text: a word, a quoted text, or a punctuation mark."""

    text: str
    is_sign: bool
    is_quoted: bool


def login_module(setting: str, text: str, accepted: Collection[str]) -> LoginModule:
    """Return the only login module of a setting.

    Args:
        setting: the name of the setting, for errors.
        text: the value of the setting.
        accepted: the names of the modules that this setting may have.

    Raises:
        ConfigError: the text is malformed, has no or several modules, or has a module that is not
            accepted.
    """
    try:
        found = parse_jaas(text, accepted)
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error.message}") from None
    if len(found) != 1:
        raise ConfigError(f"{setting}: there are {len(found)} login modules; only one may be given")
    return found[0]


def parse_jaas(text: str, accepted: Collection[str] = CLIENT_MODULES) -> tuple[LoginModule, ...]:
    """Return the login modules of a JAAS configuration.

    Args:
        text: `CLASS FLAG NAME=VALUE ...;`, once or several times. Values may be in double or single
            quotes, with Java's escapes.
        accepted: the names of the modules that are accepted.

    Raises:
        ConfigError: the text is malformed or has no module, or a module is not accepted.
    """
    if len(text) > _MAX_CHARACTERS:
        raise ConfigError(f"the value has more than {_MAX_CHARACTERS:,} characters")
    tokens = _tokens(text)
    found = tuple(_module(token, tokens, accepted) for token in tokens)
    if not found:
        raise ConfigError("there is no login module")
    return found


def jaas_text(name: str, options: Mapping[str, str]) -> str:
    """Return a JAAS configuration that `parse_jaas` and Kafka read as one required login module.

    Args:
        name: one of the constants of this module.
        options: the options of the module.
    """
    class_name = next(known for known, short in _CLASSES.items() if short == name)
    parts = [class_name, "required"]
    for key, value in options.items():
        is_word = key.isidentifier() and key.isascii()
        parts.append(f"{key if is_word else _quoted(key)}={_quoted(value)}")
    return " ".join(parts) + ";"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'


def _module(first: _Token, rest: Iterator[_Token], accepted: Collection[str]) -> LoginModule:
    flag = next(rest, None)
    if first.is_sign or flag is None or flag.text.lower() not in _FLAGS or flag.is_sign:
        raise ConfigError(
            f"a login module must begin with the name of its class and one of {', '.join(_FLAGS)}"
        )
    options: dict[str, str] = {}
    for key in rest:
        if key.is_sign and key.text == ";":
            # The name is checked last, because the error shows it. In malformed text, a password
            # could be in its place.
            return LoginModule(_name(first.text, accepted), flag.text.lower(), options)
        equals, value = next(rest, None), next(rest, None)
        is_option = equals is not None and equals.is_sign and equals.text == "="
        if key.is_sign or not is_option or value is None or value.is_sign:
            raise ConfigError(
                f"option {len(options) + 1} of a login module is not of the form NAME=VALUE; a "
                'value with blanks or signs must be in quotes, and " and \\ in it must follow a \\'
            )
        if not value.is_quoted and value.text[0] in _NUMBER:
            raise ConfigError(
                f"the value of option {len(options) + 1} of a login module begins with a digit, a "
                "dot or a hyphen: it must be in quotes"
            )
        options[key.text] = value.text
    raise ConfigError("a login module must end with a semicolon")


def _name(class_name: str, accepted: Collection[str]) -> str:
    name = _CLASSES.get(class_name.removeprefix(_SHADED))
    if name is not None and name in accepted:
        return name
    classes = ", ".join(known for known, short in _CLASSES.items() if short in accepted)
    shown = class_name if _CLASS_NAME.fullmatch(class_name) else "of this name"
    raise ConfigError(f"the login module {shown} is not supported here: use one of {classes}")


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ConfigError(
                f"character {at + 1} of the value has no meaning there; perhaps a quote is not "
                "closed"
            )
        at = found.end()
        kind = found.lastgroup
        if kind is not None:
            value = found[kind]
            quoted = kind in ("double", "single")
            yield _Token(_unescaped(value) if quoted else value, kind == "sign", quoted)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _NAMED.get(escaped, escaped)
