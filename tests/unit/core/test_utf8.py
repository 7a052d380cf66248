"""Text that fits into a Kafka string field."""

from __future__ import annotations

import pytest

from aiokq.core.utf8 import check_text, check_utf8


@pytest.mark.parametrize("text", ["", "größe", "\0", "\U0001f600", "x" * 32_767])
def test_text_that_fits_into_a_request_is_accepted(text: str) -> None:
    """Kafka limits only the length."""
    check_text(text)


@pytest.mark.parametrize("text", ["x" * 32_768, "ß" * 16_384])
def test_the_bytes_are_counted(text: str) -> None:
    """A Kafka string has a 16-bit length that counts bytes, not characters."""
    with pytest.raises(ValueError, match=r"^32,768 bytes of UTF-8; at most 32,767 fit"):
        check_text(text)


@pytest.mark.parametrize("check", [check_text, check_utf8])
def test_a_lone_surrogate_is_named_and_the_text_is_not_shown(check) -> None:
    """`os.fsdecode` produces lone surrogates. The text may be a password."""
    with pytest.raises(ValueError, match=r"^character 4 is U\+DCFF") as caught:
        check("hush\udcff")
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None
