"""Report: the anomalies that `check` found, as text, JSON and SVG."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from aiokq.testing.anomalies import Anomaly, AnomalyKind
from aiokq.testing.history import Operation
from aiokq.testing.history_format import to_json
from aiokq.testing.picture import picture

__all__ = ["Report"]

SHOWN_PER_KIND = 5
SHOWN_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `check`.

    Attributes:
        operations: number of operations in the history.
        anomalies: all anomalies, condemned or not.
    """

    operations: int
    anomalies: tuple[Anomaly, ...]

    @property
    def condemned(self) -> tuple[Anomaly, ...]:
        """The anomalies that break a guarantee of Kafka."""
        return tuple(each for each in self.anomalies if each.kind.condemned)

    @property
    def reported(self) -> tuple[Anomaly, ...]:
        """The anomalies that break no guarantee of Kafka."""
        return tuple(each for each in self.anomalies if not each.kind.condemned)

    @property
    def ok(self) -> bool:
        """Whether no anomaly breaks a guarantee of Kafka."""
        return not self.condemned

    def by_kind(self) -> Mapping[AnomalyKind, list[Anomaly]]:
        """Return the anomalies by kind, in the order of the kinds."""
        found: dict[AnomalyKind, list[Anomaly]] = defaultdict(list)
        for anomaly in self.anomalies:
            found[anomaly.kind].append(anomaly)
        return {kind: found[kind] for kind in AnomalyKind if kind in found}

    def text(self, shown: int = SHOWN_PER_KIND) -> str:
        """Return the report as text.

        For each kind of anomaly that was found, the text has the definition of the kind, the reason
        for its verdict (`AnomalyKind.why`), the first `shown` anomalies with their operations, and
        a picture of the first anomaly.
        """
        lines = [self._headline()]
        for kind, found in self.by_kind().items():
            verdict = "CONDEMNED" if kind.condemned else "reported"
            lines += ["", f"{kind} ({len(found)}, {verdict})", f"  {kind.definition}"]
            lines += [f"  {kind.why}"]
            for number, anomaly in enumerate(found[:shown]):
                lines.append(f"  - {anomaly.message}")
                lines += [f"      {_short(operation)}" for operation in anomaly.operations]
                if number == 0 and anomaly.operations:
                    lines += [f"      {line}" for line in picture(anomaly.operations)]
            if len(found) > shown:
                lines.append(f"  - and {len(found) - shown} more")
        return "\n".join(lines)

    def svg(self, shown: int = SHOWN_PER_KIND) -> str:
        """Return pictures of the first `shown` anomalies of each kind as one SVG document."""
        from aiokq.testing.svg import svg

        kinds = self.by_kind().values()
        return svg(self._headline(), [each for found in kinds for each in found[:shown]])

    def _headline(self) -> str:
        condemned = len(self.condemned)
        return (
            f"{self.operations} operations: {condemned} anomalies are condemned, "
            f"{len(self.anomalies) - condemned} reported"
        )

    def to_json(self) -> str:
        """Return the report as one JSON document, with every anomaly and its operations."""
        return json.dumps(
            {
                "operations": self.operations,
                "ok": self.ok,
                "anomalies": [
                    {
                        "kind": str(anomaly.kind),
                        "condemned": anomaly.kind.condemned,
                        "message": anomaly.message,
                        "operations": [json.loads(to_json(each)) for each in anomaly.operations],
                    }
                    for anomaly in self.anomalies
                ],
            },
            indent=2,
        )

    def __str__(self) -> str:
        return self.text()


def _short(operation: Operation) -> str:
    line = to_json(operation)
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}..."
