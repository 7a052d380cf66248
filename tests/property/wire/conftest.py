"""Compiled codecs from the first message on, so that every example compares them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokq.wire import codec


@pytest.fixture(scope="module", autouse=True)
def compiled() -> Iterator[None]:
    """Interpret no message of a rarely used type; other modules of the session are not affected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "INTERPRETED_USES", 0)
        yield
