"""LoadFailed, and one-line summaries of Spark's long errors."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Final

from aiokq.errors import KafkaError

__all__ = ["LoadFailed", "one_line_of", "unwritable"]


class LoadFailed(KafkaError):
    """A load ended before it was done."""


def unwritable(place: str | Path, error: OSError) -> LoadFailed:
    """Return the error for an unwritable file or directory; pyarrow's error lacks the path."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    advice = "free some space" if error.errno in _FULL else "fix this"
    return LoadFailed(f"{place}: {reason}; {advice}, and the same call continues the load")


_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

_PYTHON: Final = re.compile(r"^(?:[A-Za-z_][\w]*\.)*([A-Z]\w*): (.+)$")
"""Pattern of the last line of a Python traceback."""

_NO_MODULE: Final = re.compile(r"No module named '?(aiokq|pyarrow|fastavro|numpy)\b")
_JAVA: Final = re.compile(r"^: (?:[a-z]\w*\.)+[A-Z][\w$]*: (.+)$", re.MULTILINE)
"""Pattern of the first line of a Java stack trace, after "An error occurred while calling"."""

_AROUND: Final = re.compile(r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_STATE: Final = re.compile(r"( SQLSTATE: \w+)+$")
_NOISE: Final = ("PythonException", "StreamingQueryException", "SparkException", "Py4JException")


def one_line_of(error: BaseException) -> str:
    """Return the cause of Spark's error as one line, without Python and Java tracebacks."""
    text = str(error)
    missing = _NO_MODULE.search(text)
    if missing is not None:
        extra = "'aiokq[spark,avro]'" if missing[1] == "fastavro" else "'aiokq[spark]'"
        return (
            f"an executor has no package {missing[1]}: pip install {extra} for the Python of the "
            "executors (PYSPARK_PYTHON)"
        )
    found: list[str] = []
    # The original error comes first. Errors that were raised while it was handled are ignored.
    lines = text.partition("During handling of the above exception")[0].splitlines()
    for number, line in enumerate(lines):
        matched = _PYTHON.match(line.strip())
        if matched is None or matched[1] in _NOISE:
            continue
        if not matched[1].endswith(("Error", "Exception")) and "." not in line.split(":")[0]:
            continue
        found.append(_message(matched, lines[number + 1 :]))
    if found:
        return found[-1]
    thrown = _JAVA.search(text)
    if thrown is not None:
        return _STATE.sub("", thrown[1])
    first = next((line.strip() for line in lines if line.strip()), type(error).__name__)
    return _STATE.sub("", _AROUND.sub("", first))


def _message(matched: re.Match[str], following: list[str]) -> str:
    """Return the message with its continuation lines, up to the Java stack trace."""
    words = [matched[2]]
    for line in following:
        if not line.strip() or line.startswith(("\tat ", "Traceback", "JVM stacktrace", "==")):
            break
        words.append(line.strip())
    return _STATE.sub("", " ".join(words))
