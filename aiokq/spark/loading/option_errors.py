"""Translation of the source's error messages into messages about options of the load."""

from __future__ import annotations

import re
from typing import Final

from aiokq.errors import ConfigError
from aiokq.spark.loading.options import OptionError

__all__ = ["in_words_of_load", "refusal_of_load"]

OPTIONS: Final = {
    "startingOffsets": "starting",
    "startingTimestamp": "starting_timestamp_ms",
    "subscribe": "topics",
    "subscribePattern": "topics_pattern",
    "failOnDataLoss": "fail_on_data_loss",
    "includeHeaders": "headers",
    "maxOffsetsPerTrigger": "records_per_batch",
    "kafka.isolation.level": "read_committed",
}
"""Maps options of the source to the options of the load that set them."""

_REFUSED: Final = re.compile(r"option ([A-Za-z.]+): (.*)", re.DOTALL)
_LOST: Final = re.compile(
    r"\[KAFKA_DATA_LOSS\.\w+\] .*? set the source option failOnDataLoss to false\.\s*Reason:\s*",
    re.DOTALL,
)
_TOLERATED: Final = "fail_on_data_loss=False"


def refusal_of_load(error: ConfigError) -> ConfigError:
    """Return the error in terms of the load's option; unchanged if the load has no such option."""
    found = _REFUSED.fullmatch(str(error))
    option = None if found is None else OPTIONS.get(found[1])
    if found is None or option is None:
        return error
    return OptionError(option, in_words_of_load(found[2]))


def in_words_of_load(text: str) -> str:
    """Return a message of the source, reworded for the options of a load."""
    lost = _LOST.match(text)
    if lost is not None:
        text = (
            "records may have been deleted before they were loaded, by retention or with their "
            f"topic: {text[lost.end() :].rstrip()} With {_TOLERATED} the load continues"
        )
    text = text.replace("failOnDataLoss=false the query begins", f"{_TOLERATED} the load begins")
    found = _REFUSED.fullmatch(text)
    if found is not None and found[1] in OPTIONS:
        text = f"{OPTIONS[found[1]]}: {found[2]}"
    return text
