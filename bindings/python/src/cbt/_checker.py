"""The checker of a metadata stream that was received."""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from cbt._border import Int64Array, array_of, call, make, size_of, sized, text_of
from cbt._cursor import Batch
from cbt._errors import FailedPreconditionError
from cbt._native import ffi, lib

if TYPE_CHECKING:
    from typing_extensions import Buffer


class BlockMetadataType(enum.IntEnum):
    """How a stream reports ranges."""

    FIXED_LENGTH = 1
    VARIABLE_LENGTH = 2


class Proof(enum.IntEnum):
    """What the server's proof of completeness says."""

    ABSENT = 0  # the server sends none
    HOLDS = 1  # nothing is missing
    HOLDS_FOR_PLACE = 2  # the same, of data that may have changed between two calls
    HOLDS_FROM_RELAY = 3  # the same, but it does not reach back to the source


class Tuples(Batch):
    """The tuples of a message, with what it says of the volume. The arrays belong to this object."""

    __slots__ = ("capacity", "type")

    def __init__(self, offsets: Int64Array, lengths: Int64Array, covered: int, capacity: int,
                 kind: BlockMetadataType) -> None:
        super().__init__(offsets, lengths, covered, False)
        self.capacity = capacity
        self.type = kind


class Checker:
    """Decodes the messages of one stream and checks them against the rules that a receiver may rely on.

    A broken rule raises DataLossError, and so does every further call. The answer is complete when
    finish() has returned, and for no other reason. One thread at a time may use a checker.
    """

    def __init__(self, *, starting_offset: int = 0, max_results: int = 0, require_proof: bool = False) -> None:
        """`starting_offset` and `max_results` as in the request. `require_proof`: finish() fails without a proof."""
        if not 0 <= max_results < 1 << 32:
            raise ValueError(f"max_results {max_results}: out of range")
        options = sized("cbt_checker_options", starting_offset=size_of(starting_offset, "starting_offset"),
                        max_results=max_results, require_proof=int(require_proof))
        self._handle: Any = make("cbt_checker", lib.cbt_checker_new, options)
        self._lock = threading.Lock()

    def message(self, data: Buffer) -> Tuples:
        """Decodes and checks the next message."""
        memory, tuples = ffi.from_buffer("uint8_t[]", memoryview(data)), ffi.new("cbt_tuples*")
        with _Alone(self):
            call(lib.cbt_checker_message, self._handle, memory, len(memory), tuples)
            # The arrays are lent until the next call.
            offsets, lengths = array_of(tuples.offsets, tuples.count), array_of(tuples.lengths, tuples.count)
            return Tuples(offsets, lengths, lib.cbt_checker_resume_offset(self._handle), tuples.capacity,
                          BlockMetadataType(tuples.type))

    def finish(self, trailing: Iterable[tuple[str, str | bytes]] = ()) -> Proof:
        """The verdict, once the call has ended with OK. `trailing`: its trailing metadata."""
        # Binary values are none of ours.
        texts = [(text_of(key), text_of(value)) for key, value in trailing if isinstance(value, str)]
        entries = ffi.new("cbt_metadata[]", len(texts))
        for entry, (key, value) in zip(entries, texts, strict=True):
            entry.key, entry.value = key, value
        proof = ffi.new("int32_t*")
        with _Alone(self):
            call(lib.cbt_checker_finish, self._handle, entries, len(texts), proof)
        return Proof(proof[0])

    @property
    def resume_offset(self) -> int:
        """Where to resume when the call ended early: the end of the last tuple, or the starting offset."""
        with _Alone(self):
            return int(lib.cbt_checker_resume_offset(self._handle))

    @property
    def tuples(self) -> int:
        """Their number so far."""
        with _Alone(self):
            return int(lib.cbt_checker_tuples(self._handle))

    @property
    def reported_bytes(self) -> int:
        """What they report so far."""
        with _Alone(self):
            return int(lib.cbt_checker_reported_bytes(self._handle))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a checker can't be pickled or copied")


class _Alone:
    __slots__ = ("_checker",)

    def __init__(self, checker: Checker) -> None:
        self._checker = checker

    def __enter__(self) -> None:
        if not self._checker._lock.acquire(blocking=False):
            raise FailedPreconditionError("the checker is in use by another thread")

    def __exit__(self, *_: object) -> None:
        self._checker._lock.release()
