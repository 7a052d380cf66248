"""`PrincipalRules`: maps the distinguished name of a client's certificate to a principal.

RE2 matches the regular expressions of the rules. It takes linear time for every name; Java's engine
may take exponential time.

Source: Kafka `SslPrincipalMapper.java` (`ssl.principal.mapping.rules`).
Tests: tests/unit/connection/tls/test_principal_rules.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from aiokq.connection.principal import ANONYMOUS, Principal
from aiokq.connection.tls.certificate import Certificate
from aiokq.core.errors import AuthenticationFailed, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DEFAULT_RULES", "PrincipalRules"]

DEFAULT_RULES: Final = "DEFAULT"

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)|"
_PARSER: Final = re.compile(_RULE)
_SPLITTER: Final = re.compile(rf"\s*((?:{_RULE})[^,]*?)\s*(?:,\s*|$)")
_BACK_REFERENCE: Final = re.compile(r"\$(\d+)")


class PrincipalRules:
    """The mapping rules of a listener.

    Args:
        text: the value of the setting: rules with commas between them. The first rule whose
            expression matches the whole distinguished name decides.
        spelled: name of the setting, for errors.

    Raises:
        ConfigError: a rule is malformed, RE2 refuses its expression, or google-re2 is missing.
    """

    def __init__(
        self, text: str = DEFAULT_RULES, spelled: str = "ssl.principal.mapping.rules"
    ) -> None:
        self._text = text
        self._rules: list[_Rule | None] = []  # None is DEFAULT
        for part in _split(text):
            found = _PARSER.fullmatch(part)
            if found is None:
                raise ConfigError(
                    f"{spelled}: {part!r} is neither RULE:pattern/replacement/[LU] nor DEFAULT"
                )
            if found[1] is not None:
                self._rules.append(None)
            elif found[2] is not None:
                self._rules.append(_Rule(found[2], found[3], found[4], spelled))

    def name_of(self, distinguished_name: str) -> str:
        """Return the name of the principal.

        Raises:
            AuthenticationFailed: no rule applies.
        """
        for rule in self._rules:
            name = distinguished_name if rule is None else rule.apply(distinguished_name)
            if name is not None:
                return name
        raise AuthenticationFailed(
            f"no rule of ssl.principal.mapping.rules applies to {distinguished_name!r}"
        )

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Return the principal of a client; `ANONYMOUS` without a certificate.

        Args:
            certificate: DER form of the client's certificate; None if it has none.

        Raises:
            AuthenticationFailed: no rule applies, or the certificate cannot be read.
        """
        if certificate is None:
            return ANONYMOUS
        try:
            name = Certificate.of(certificate).name
        except ValueError as error:
            raise AuthenticationFailed(
                f"the client's certificate cannot be read: {error}"
            ) from None
        return Principal("User", self.name_of(name))


class _Rule:
    __slots__ = ("_change", "_parts", "_pattern")

    def __init__(self, pattern: str, replacement: str, case: str, spelled: str) -> None:
        try:
            import re2  # type: ignore[import-not-found,import-untyped,unused-ignore]
            from re2 import Options  # another package also has a module re2, without Options
        except ImportError:
            raise ConfigError(
                f"{spelled}: rules need the google-re2 package (pip install google-re2)"
            ) from None
        options = Options()
        options.log_errors = False  # otherwise RE2 writes errors to stderr
        try:
            self._pattern: Any = re2.compile(pattern, options)
        except re2.error as error:
            detail = error.args[0] if error.args else error
            text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
            raise ConfigError(
                f"{spelled}: {pattern!r} is not an expression of RE2: {text}"
            ) from None
        self._parts = _template(replacement, self._pattern.groups, spelled)
        self._change: Callable[[str], str] | None = {"L": str.lower, "U": str.upper}.get(case)

    def apply(self, name: str) -> str | None:
        """Return the name of the principal; None if the expression does not match."""
        if self._pattern.fullmatch(name) is None:
            return None
        # Java replaces each match of a search, which may be shorter than the whole name.
        parts: list[str] = []
        position = 0
        for match in self._pattern.finditer(name):
            parts.append(name[position : match.start()])
            parts += [
                part if isinstance(part, str) else match.group(part) or "" for part in self._parts
            ]
            position = match.end()
        result = "".join([*parts, name[position:]])
        return result if self._change is None else self._change(result)


def _split(text: str) -> list[str]:
    text = text.strip()
    parts: list[str] = []
    position = 0
    while position < len(text):
        found = _SPLITTER.match(text, position)
        assert found is not None  # this matches any text; `_PARSER` refuses bad rules
        parts.append(found[1])
        position = found.end()
    return parts


def _template(replacement: str, groups: int, spelled: str) -> list[str | int]:
    """Parse a replacement in Java's syntax into texts and group numbers.

    Raises:
        ConfigError: the replacement ends with a backslash, or a ``$`` has no number.
    """
    parts: list[str | int] = []
    position = 0
    while position < len(replacement):
        character = replacement[position]
        if character == "\\":
            if position + 1 == len(replacement):
                raise ConfigError(f"{spelled}: {replacement!r} ends with a backslash")
            parts.append(replacement[position + 1])
            position += 2
        elif character == "$":
            found = _BACK_REFERENCE.match(replacement, position)
            if found is None:
                raise ConfigError(f"{spelled}: '$' in {replacement!r} needs a number")
            digits = found[1]
            # As in Java, take the longest run of digits that is the number of a group.
            while len(digits) > 1 and int(digits) > groups:
                digits = digits[:-1]
            number = int(digits)
            parts.append(number if number <= groups else f"${digits}")
            position += 1 + len(digits)
        else:
            parts.append(character)
            position += 1
    return parts
