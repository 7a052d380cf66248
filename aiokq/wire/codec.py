"""Encoding and decoding of messages by compiled codecs, which are cached here.

    body = encode_bytes(MetadataRequest(topics=None), 12)
    request = decode(MetadataRequest, body, 12)

Messages other than requests and responses are interpreted (`aiokq.wire.interpret`) until their type
has been used a few times. A starting broker reads and writes only a few metadata records of each
type; compiling codecs for these types would double the time that the records take.

Frames (sizes, headers, correlation ids) are in `aiokq.wire.frames`. `aiokq.wire.compile` generates
the codecs.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final, TypeVar, cast

from aiokq.core.errors import ProtocolError
from aiokq.core.files import FileRange
from aiokq.wire.fields import Buffer, Fragment
from aiokq.wire.struct import Message, Request, Response

if TYPE_CHECKING:
    from aiokq.wire.compile import Decoder, DecoderInSteps, Encoder, EncoderInSteps

__all__ = [
    "decode",
    "decode_in_steps",
    "decode_prefixed",
    "encode",
    "encode_bytes",
    "encode_in_steps",
    "encode_prefixed",
    "set_decoder",
    "set_encoder",
]

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}
_decoders_in_steps: dict[tuple[type[Message], int], DecoderInSteps] = {}
_encoders_in_steps: dict[tuple[type[Message], int], EncoderInSteps] = {}

INTERPRETED_USES: Final = 8
"""Number of messages of one type and version that are interpreted before a codec is compiled.

The limit applies to messages other than requests and responses. Decoded and encoded messages are
counted separately.
"""

_decoded: dict[tuple[type[Message], int], int] = {}
_encoded: dict[tuple[type[Message], int], int] = {}


def encode(message: Message, version: int) -> list[Fragment]:
    """Encode a message, without header, into a list of fragments.

    Fields and short record data are joined. Longer record data and ranges of files are passed by
    reference.

    Raises:
        FieldNotSupported: the message sets a field that the version lacks, and that is not
            ignorable.
        ProtocolError: the version is not supported, or a value does not fit its field.
    """
    encoder = _encoders.get((type(message), version))
    if encoder is None:
        if _is_rare(type(message), version, _encoded):
            from aiokq.wire import interpret

            try:
                return [interpret.encode(message, version)]
            except Exception:  # noqa: BLE001 - the compiled encoder encodes again, and raises its error
                pass
        encoder = _compile_encoder(type(message), version)
    return encoder(message)


def encode_bytes(message: Message, version: int) -> bytes:
    """Encode a message, without header, into one byte string; record data is copied.

    Raises:
        ProtocolError: the version is not supported, a value does not fit its field, or record data
            is a range of a file.
    """
    fragments = encode(message, version)
    for fragment in fragments:
        if isinstance(fragment, FileRange):
            raise ProtocolError(
                "record data is a range of a file and cannot be copied",
                api=message.NAME,
                version=version,
            )
    return b"".join(cast("list[bytes]", fragments))


def decode(cls: type[M], data: Buffer, version: int, position: int = 0, *, exact: bool = True) -> M:
    """Decode the message that starts at `position` in `data`.

    Record data is a view of `data`, which must not change while the view is used; other values are
    copied.

    Args:
        exact: whether bytes after the message are an error; if false, they are ignored.

    Raises:
        ProtocolError: the version is not supported, or the bytes are not such a message. The bytes
            cannot cause any other error.
    """
    decoder = _decoders.get((cls, version))
    if decoder is None:
        if _is_rare(cls, version, _decoded):
            from aiokq.wire import interpret

            try:
                return interpret.decode(cls, data, version, position)
            except ProtocolError:  # decode again with the compiled decoder, which takes `exact`
                pass
        decoder = _compile_decoder(cls, version)
    return decoder(data, position, exact)  # type: ignore[return-value]


def encode_in_steps(message: Message, version: int) -> Generator[None, None, list[Fragment]]:
    """Encode like `encode`, but yield between array elements, so that other tasks can run.

    Raises:
        FieldNotSupported, ProtocolError: see `encode`.
    """
    encoder = _encoders_in_steps.get((type(message), version))
    if encoder is None:
        _check_version(type(message), version)
        from aiokq.wire.compile import encoder_in_steps

        encoder = encoder_in_steps(type(message), version)
        _encoders_in_steps[type(message), version] = encoder
    return encoder(message)


def decode_in_steps(
    cls: type[M], data: Buffer, version: int, position: int = 0, *, exact: bool = True
) -> Generator[None, None, M]:
    """Decode like `decode`, but yield between array elements, so that other tasks can run.

    Raises:
        ProtocolError: see `decode`.
    """
    decoder = _decoders_in_steps.get((cls, version))
    if decoder is None:
        _check_version(cls, version)
        from aiokq.wire.compile import decoder_in_steps

        decoder = _decoders_in_steps[cls, version] = decoder_in_steps(cls, version)
    return cast("Generator[None, None, M]", decoder(data, position, exact))


def encode_prefixed(message: Message, version: int) -> bytes:
    """Return an encoded message, preceded by its 16-bit version.

    The consumer protocol and the records of coordinators have this format. In the key of such a
    record, the `RECORD_TYPE` replaces the version.

    Raises:
        ProtocolError: the version is not supported, or a value does not fit its field.
    """
    return _prefix(type(message), version).to_bytes(2, "big") + encode_bytes(message, version)


def decode_prefixed(cls: type[M], data: Buffer, *, exact: bool = True) -> M:
    """Decode a message that is preceded by its 16-bit version.

    If the version is newer than `MAX_VERSION` of the class, the message is read as `MAX_VERSION`,
    and the bytes after it are skipped. This is Kafka's rule for the consumer protocol, whose
    versions only append fields.

    Args:
        exact: whether bytes after a message of a supported version are an error. Bytes after the
            key of a coordinator's record are always an error.

    Raises:
        ProtocolError: the version is older than the oldest version of the class, the bytes are not
            such a message, or they are the key of another record type.
    """
    view = memoryview(data)
    if len(view) < 2:
        raise ProtocolError(f"{len(view)} bytes, too short for a version", api=cls.NAME, offset=0)
    found = int.from_bytes(view[:2], "big", signed=True)
    if cls.RECORD_TYPE is not None and cls.NAME.endswith("Key"):
        if found != cls.RECORD_TYPE:
            raise ProtocolError(
                f"record type {found}, not {cls.RECORD_TYPE}", api=cls.NAME, offset=0
            )
        return decode(cls, data, cls.MIN_VERSION, 2)
    version = min(found, cls.MAX_VERSION)
    return decode(cls, data, version, 2, exact=exact and found == version)


def set_encoder(cls: type[Message], version: int, encoder: Encoder) -> None:
    """Use `encoder` for messages of a class in a version."""
    _encoders[cls, version] = encoder


def set_decoder(cls: type[Message], version: int, decoder: Decoder) -> None:
    """Use `decoder` for messages of a class in a version."""
    _decoders[cls, version] = decoder


def _prefix(cls: type[Message], version: int) -> int:
    if cls.RECORD_TYPE is not None and cls.NAME.endswith("Key"):
        return cls.RECORD_TYPE
    return version


def _is_rare(cls: type[Message], version: int, uses: dict[tuple[type[Message], int], int]) -> bool:
    """Count a use of a message type; return whether the type is still too rare to compile a codec.

    If so, the caller encodes or decodes the message by `aiokq.wire.interpret`.
    """
    if issubclass(cls, Request | Response) or not cls.supports(version):
        return False
    used = uses[cls, version] = uses.get((cls, version), 0) + 1
    return used <= INTERPRETED_USES


def _compile_decoder(cls: type[Message], version: int) -> Decoder:
    _check_version(cls, version)
    # The generator is imported on first use: it is not needed to define messages.
    from aiokq.wire.compile import decoder

    made = _decoders[cls, version] = decoder(cls, version)
    return made


def _compile_encoder(cls: type[Message], version: int) -> Encoder:
    _check_version(cls, version)
    from aiokq.wire.compile import encoder

    made = _encoders[cls, version] = encoder(cls, version)
    return made


def _check_version(cls: type[Message], version: int) -> None:
    if not cls.supports(version):
        raise ProtocolError(
            f"{cls.__name__} has versions {cls.MIN_VERSION} to {cls.MAX_VERSION}, not {version}",
            api=cls.NAME,
            version=version,
        )
