"""Cursors: a position in a volume's changed (or allocated) extents, read in batches."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, Self

import numpy as np

from cbt import _arrow
from cbt._border import (
    Int64Array,
    Path,
    bytes_of,
    call,
    disown,
    extents_of,
    failed,
    forget,
    geometry_of,
    keep,
    kept,
    make,
    note_failure,
    path_of,
    raise_error,
    raise_interrupt,
    run_callback,
    size_of,
    sized,
    text_of,
    uint64_array,
)
from cbt._errors import FailedPreconditionError, IncompleteError, InternalError
from cbt._native import ffi, lib

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from cbt._map import ChangeMap

_OPERATIONS = {"xor": 0, "and_not": 1, "or": 2, "and": 3}
_PURPOSES = {"any": 0, "allocated": 1, "delta": 2}
_BUSY = "the cursor is in use: by another thread, or by the call that runs this callback"
_frombuffer, _from_buffer = np.frombuffer, ffi.from_buffer
# Large enough that a call costs nothing beside its extents; half a megabyte.
_BATCH = 32768


class Geometry(NamedTuple):
    """The size of a volume and of its blocks, in bytes."""

    capacity: int
    granularity: int


class Batch:
    """Some extents, ascending: offset and length in bytes.

    The arrays belong to the batch: they stay as they are for as long as anything refers to them.
    They hold int64, which every offset fits: arithmetic with Python's and NumPy's integers stays
    exact.
    """

    __slots__ = ("complete", "covered", "lengths", "offsets")

    def __init__(self, offsets: Int64Array, lengths: Int64Array, covered: int, complete: bool) -> None:
        self.offsets = offsets
        self.lengths = lengths
        # Every extent below this offset has been returned.
        self.covered = covered
        # Whether this is the last batch.
        self.complete = complete

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(offset, length) as Python's integers."""
        return zip(self.offsets.tolist(), self.lengths.tolist(), strict=True)

    def __repr__(self) -> str:
        return f"<cbt.Batch of {len(self)} extents, covered to {self.covered}{', complete' if self.complete else ''}>"


class Extents:
    """A complete answer in memory: what Cursor.read_all() returns."""

    __slots__ = ("capacity", "lengths", "offsets")

    def __init__(self, offsets: Int64Array, lengths: Int64Array, capacity: int) -> None:
        self.offsets = offsets
        self.lengths = lengths
        self.capacity = capacity

    @property
    def bytes(self) -> int:
        """The sum of all lengths."""
        return int(self.lengths.sum(dtype=np.uint64))

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(offset, length) as Python's integers."""
        for start in range(0, len(self), _BATCH):
            part = slice(start, start + _BATCH)
            yield from zip(self.offsets[part].tolist(), self.lengths[part].tolist(), strict=True)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """An Arrow stream with the columns byte_offset and size_bytes (uint64); any number of times."""
        end = int(self.offsets[-1]) + int(self.lengths[-1]) if len(self) else 0
        first, second, count, _keep = extents_of(self.offsets, self.lengths)
        handle = make("cbt_cursor", lib.cbt_cursor_from_extents, first, second, count,
                      geometry_of(max(self.capacity, end), 1))
        return _arrow.export(disown(handle), 0)

    def __repr__(self) -> str:
        return f"<cbt.Extents: {len(self)} extents, {self.bytes} of {self.capacity} bytes>"


class ExtentSource(Protocol):
    """A storage of the caller's own, for Cursor.from_source().

    One call at a time, from the thread that reads the cursor. An exception ends the reading: one of
    cbt.Error with its code, others as INTERNAL.
    """

    def seek(self, offset: int) -> None:
        """Moves to `offset`, a multiple of the granularity: the next extents are those that end after it, cut at it."""

    def next(self, room: int) -> tuple[Sequence[int] | Int64Array, Sequence[int] | Int64Array, int]:
        """At most `room` extents as (offsets, lengths, covered).

        Nothing remains to be reported below `covered`. The answer ends when it reaches the capacity,
        and for no other reason.
        """


class Cursor:
    """Changed or allocated extents of a volume.

    A loop over it reads the whole answer, and ends only when that is complete; every failure
    raises. Each loop begins anew. One thread at a time may use a cursor.

    A `with` block closes it, and raises IncompleteError if an answer was begun and not read to its
    end, unless abandon() was called.
    """

    def __init__(self, handle: Any) -> None:
        """Not for callers: use the class methods, open_source(), or a map or chain."""
        self._handle = handle
        self._lock = threading.Lock()
        self._reading: object = None  # the loop that may go on
        self._begun = False  # an answer was begun and is not complete
        self._failed = False
        geometry = lib.cbt_cursor_geometry(handle)
        self.geometry = Geometry(geometry.capacity, geometry.granularity)

    # --- From memory

    @classmethod
    def from_bitmap(cls, bits: Buffer, capacity: int, granularity: int, *, first_bit: int = 0,
                    most_significant_first: bool = False, inverted: bool = False, reversed_word_bytes: int = 1,
                    copy: bool | None = None) -> Self:
        """The set bits of `bits`, one for each block of `granularity` bytes.

        `copy`: None copies memory that can be written to, and keeps other memory exported for the
        cursor's life; False keeps both. What is kept must not change.
        """
        data = bytes_of(bits, copy)
        layout = _layout(first_bit, most_significant_first, inverted, reversed_word_bytes)
        return cls(make("cbt_cursor", lib.cbt_cursor_from_bitmap, data, layout, geometry_of(capacity, granularity)))

    @classmethod
    def from_bitmaps(cls, base: Buffer, target: Buffer, operation: str, capacity: int, granularity: int, *,
                     first_bit: int = 0, most_significant_first: bool = False, inverted: bool = False,
                     reversed_word_bytes: int = 1, copy: bool | None = None) -> Self:
        """A combination of two bitmaps: `operation` is xor, and_not (target and not base), or, and."""
        if operation not in _OPERATIONS:
            raise ValueError(f"operation {operation!r}: expected one of {', '.join(_OPERATIONS)}")
        both = bytes_of(base, copy), bytes_of(target, copy)
        layout = _layout(first_bit, most_significant_first, inverted, reversed_word_bytes)
        return cls(make("cbt_cursor", lib.cbt_cursor_from_bitmaps, *both, _OPERATIONS[operation], layout,
                        geometry_of(capacity, granularity)))

    @classmethod
    def from_extents(cls, offsets: Iterable[int] | Int64Array, lengths: Iterable[int] | Int64Array, capacity: int,
                     granularity: int = 1) -> Self:
        """Extents that ascend and don't overlap; copied."""
        first, second, count, _keep = extents_of(offsets, lengths)
        return cls(make("cbt_cursor", lib.cbt_cursor_from_extents, first, second, count,
                        geometry_of(capacity, granularity)))

    @classmethod
    def from_memory(cls, memory: Buffer, block_size: int = 0, *, copy: bool | None = None) -> Self:
        """The blocks of `memory` that hold a byte other than 0."""
        return cls(make("cbt_cursor", lib.cbt_cursor_from_memory, bytes_of(memory, copy),
                        size_of(block_size, "block_size")))

    @classmethod
    def from_memory_delta(cls, base: Buffer, target: Buffer, block_size: int = 0, *, copy: bool | None = None) -> Self:
        """The blocks in which two ranges of the same size differ."""
        return cls(make("cbt_cursor", lib.cbt_cursor_from_memory_delta, bytes_of(base, copy), bytes_of(target, copy),
                        size_of(block_size, "block_size")))

    @classmethod
    def from_source(cls, source: ExtentSource, capacity: int, granularity: int) -> Self:
        """A cursor over the caller's own storage. Every answer is checked: a wrong one raises."""
        callbacks = ffi.new("cbt_cursor_callbacks*")
        number = keep(source)
        lib.cbt_py_fill_callbacks(callbacks, number)
        try:
            return cls(make("cbt_cursor", lib.cbt_cursor_from_callbacks, callbacks, geometry_of(capacity, granularity)))
        except BaseException:
            forget(number)
            raise

    @classmethod
    def from_map(cls, change_map: ChangeMap) -> Self:
        """The extents of a change map, which the cursor keeps."""
        return cls(make("cbt_cursor", lib.cbt_cursor_from_map, change_map._handle))

    # --- Reading

    @property
    def capacity(self) -> int:
        """The size of the volume in bytes."""
        return self.geometry.capacity

    @property
    def granularity(self) -> int:
        """The unit, in bytes, in which the cursor knows about changes."""
        return self.geometry.granularity

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def batches(self, start: int = 0, size: int = _BATCH) -> Iterator[Batch]:
        """The answer from offset `start` (rounded down to the granularity) in batches of at most `size` extents.

        Another loop over the same cursor ends this one with an error.
        """
        if not 1 <= size <= 1 << 24:
            raise ValueError(f"size {size}: expected 1 to 2^24")
        return _Reader(self, size_of(start, "start"), size)

    def read_all(self, start: int = 0) -> Extents:
        """The whole answer in memory: 16 bytes for each extent."""
        parts = list(self.batches(start, 1 << 16))
        if not parts:
            return Extents(np.empty(0, np.int64), np.empty(0, np.int64), self.capacity)
        return Extents(np.concatenate([part.offsets for part in parts]),
                       np.concatenate([part.lengths for part in parts]), self.capacity)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The answer as an Arrow stream with the columns byte_offset and size_bytes (uint64).

        Once: the stream takes the cursor. read_all() and change maps give any number of streams.
        """
        handle = self._take()
        self._begun = False
        call(lib.cbt_cursor_seek, handle, 0)
        return _arrow.export(disown(handle), 0)

    # --- Transforms: each takes the cursor, which can't be used afterwards

    def coalesce(self, max_gap: int) -> Cursor:
        """Merges neighbours with at most `max_gap` bytes between them."""
        return self._transform(lib.cbt_cursor_coalesce, size_of(max_gap, "max_gap"))

    def split(self, max_length: int) -> Cursor:
        """Cuts extents longer than `max_length` bytes, a multiple of the granularity."""
        return self._transform(lib.cbt_cursor_split, size_of(max_length, "max_length"))

    def align_outward(self, granularity: int) -> Cursor:
        """Rounds extents outward to multiples of `granularity` bytes and merges those that then touch."""
        return self._transform(lib.cbt_cursor_align_outward, size_of(granularity, "granularity"))

    def clip(self, begin: int, end: int) -> Cursor:
        """Keeps what lies in [begin, end)."""
        return self._transform(lib.cbt_cursor_clip, size_of(begin, "begin"), size_of(end, "end"))

    def to_blocks(self, block_size: int) -> Cursor:
        """Blocks of `block_size` bytes, each at a multiple of it; the last one keeps its size past the capacity."""
        return self._transform(lib.cbt_cursor_to_blocks, size_of(block_size, "block_size"))

    def union(self, *others: Cursor) -> Cursor:
        """What lies in any of the cursors."""
        taken = _take_all(self, *others)
        return Cursor(make("cbt_cursor", lib.cbt_cursor_union, taken, len(taken)))

    def intersect(self, other: Cursor) -> Cursor:
        """What lies in both."""
        return Cursor(make("cbt_cursor", lib.cbt_cursor_intersect, *_take_all(self, other)))

    def subtract(self, other: Cursor) -> Cursor:
        """What lies here and not in `other`, which must be exact: what it reports is removed."""
        return Cursor(make("cbt_cursor", lib.cbt_cursor_subtract, *_take_all(self, other)))

    def _transform(self, function: Any, *numbers: int) -> Cursor:
        return Cursor(make("cbt_cursor", function, disown(self._take()), *numbers))

    # --- Life

    @property
    def closed(self) -> bool:
        """Whether it was closed, or taken by a transform, a stream or an answer."""
        return self._handle is None

    def abandon(self) -> None:
        """Says that the rest of the answer is not wanted: the `with` block ends without an error then."""
        self._begun = False
        self._reading = None

    def close(self) -> None:
        """Frees it. Any number of times."""
        self._handle = None
        self._begun = False

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None,
                 trace: TracebackType | None) -> None:
        incomplete = self._begun
        self.close()
        if incomplete and kind is None:
            raise IncompleteError("the answer was not read to its end: what was read is a part of it; read on, or "
                                  "call abandon()")

    def __del__(self) -> None:
        if getattr(self, "_begun", False) and not self._failed:
            warnings.warn("a cursor was dropped before its answer was complete: what was read is a part of it",
                          ResourceWarning, source=self, stacklevel=1)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a cursor can't be pickled or copied")

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.capacity} bytes in blocks of {self.granularity}"
        return f"<cbt.Cursor: {state}>"

    def _check_open(self) -> Any:
        handle = self._handle
        if handle is None:
            raise ValueError("the cursor is closed, or was taken by what was made of it")
        return handle

    def _take(self) -> Any:
        """Its handle, which this object gives away."""
        with _Use(self) as handle:
            self._handle = None
            self._begun = False
            return handle


class _Reader(Iterator[Batch]):
    """A loop over a cursor. It ends when the answer is complete; a failure is raised again by every further next()."""

    def __init__(self, cursor: Cursor, start: int, size: int) -> None:
        self._cursor, self._size = cursor, size
        self._batch, self._error = ffi.new("cbt_batch*"), ffi.new("cbt_error**")
        self._memory, self._spare = bytearray(), bytearray()
        self._complete = False
        self._failure: BaseException | None = None
        with _Use(cursor) as handle:
            # A loop that was begun and abandoned has left the cursor anywhere.
            cursor._reading, cursor._begun, cursor._failed = self, True, False
            try:
                call(lib.cbt_cursor_seek, handle, start)
            except BaseException:
                cursor._failed = True
                raise

    def __next__(self) -> Batch:
        while True:
            # As with _Use and call(), which would take as long as a thousand extents. Everything that
            # another thread with the same loop could see half done happens under the lock.
            cursor = self._cursor
            if not cursor._lock.acquire(False):
                raise FailedPreconditionError(_BUSY)
            try:
                if self._failure is not None:
                    raise self._failure
                if self._complete:
                    raise StopIteration
                try:
                    found = self._fill(cursor)
                except BaseException as failure:
                    self._failure = failure
                    cursor._failed = True
                    raise
            finally:
                cursor._lock.release()
            if found is not None:
                return found

    def _fill(self, cursor: Cursor) -> Batch | None:
        if cursor._reading is not self:
            raise FailedPreconditionError("another loop over this cursor has begun: this one has no answer")
        size, batch = self._size, self._batch
        # The loop's variable still holds the last batch: two blocks of memory take turns.
        memory = _own(self._spare, size)
        self._memory, self._spare = memory, self._memory
        failed.raised = None
        code = lib.cbt_py_read(cursor._check_open(), _from_buffer(memory), size, batch, self._error)
        if code:
            raise_error(code, self._error[0])
        if failed.raised is not None:
            raise_interrupt()
        complete = batch.complete != 0
        if complete:
            self._complete, cursor._begun = True, False
        count = batch.count
        if count == 0:
            return None
        numbers = _frombuffer(memory, np.int64)
        return Batch(numbers[:count], numbers[size:size + count], batch.covered, complete)


class _Use:
    """The right to call the engine with a cursor: one thread at a time, and no callback of its own."""

    __slots__ = ("_cursor",)

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor

    def __enter__(self) -> Any:
        if not self._cursor._lock.acquire(blocking=False):
            raise FailedPreconditionError(_BUSY)
        handle = self._cursor._handle
        if handle is None:
            self._cursor._lock.release()
            self._cursor._check_open()
        return handle

    def __exit__(self, *_: object) -> None:
        self._cursor._lock.release()


def _take_all(*cursors: Cursor) -> list[Any]:
    if len({id(cursor) for cursor in cursors}) != len(cursors):
        raise ValueError("a cursor can't be combined with itself: make a second one")
    with contextlib.ExitStack() as uses:
        handles = [uses.enter_context(_Use(cursor)) for cursor in cursors]
        for cursor in cursors:
            cursor._handle, cursor._begun = None, False
    return [disown(handle) for handle in handles]


def _own(memory: bytearray, size: int) -> bytearray:
    """Memory for a batch that no one else sees: `memory` again, or new memory if arrays still show it.

    A bytearray refuses to change its size while it is exported, and an array exports it as long as it,
    or any view of it, exists.
    """
    if len(memory) == 16 * size:
        try:
            memory.append(0)
            memory.pop()
            return memory
        except BufferError:
            pass
    # With room for the byte of the next call, so that it does not move.
    memory = bytearray(16 * size + 1)
    memory.pop()
    return memory


def _layout(first_bit: int, most_significant_first: bool, inverted: bool, reversed_word_bytes: int) -> Any:
    return sized("cbt_bitmap_layout", first_bit=size_of(first_bit, "first_bit"),
                 most_significant_first=int(most_significant_first), inverted=int(inverted),
                 reversed_word_bytes=size_of(reversed_word_bytes, "reversed_word_bytes"))


@ffi.def_extern(error=0, onerror=note_failure)  # type: ignore[untyped-decorator]
def cbt_py_seek(number: int, offset: int, error: Any) -> int:
    return run_callback(error, lambda: kept(number).seek(offset))


@ffi.def_extern(error=0, onerror=note_failure)  # type: ignore[untyped-decorator]
def cbt_py_next(number: int, offsets: Any, lengths: Any, room: int, count: Any, covered: Any, error: Any) -> int:
    def body() -> None:
        answer = kept(number).next(room)
        try:
            given, sizes, end = answer
        except (TypeError, ValueError):
            raise InternalError("next() did not return (offsets, lengths, covered)") from None
        first, second = uint64_array(given, "offsets"), uint64_array(sizes, "lengths")
        if len(first) != len(second) or len(first) > room:
            raise InternalError(f"next({room}) returned {len(first)} offsets and {len(second)} lengths")
        ffi.memmove(offsets, first, 8 * len(first))
        ffi.memmove(lengths, second, 8 * len(second))
        count[0] = len(first)
        covered[0] = size_of(end, "covered")

    return run_callback(error, body)


def open_source(address: Path, format: str | None = None, *, base: Path | None = None, purpose: str = "any",
                by_extents: bool = False, capacity: int = 0, base_capacity: int = 0, block_size: int | None = 0,
                time_limit: float | None = None) -> Cursor:
    """A cursor over a file, a device or an NBD server.

    `format` is FORMAT or FORMAT:KEY=VALUE,..., as `cbtctl extents --from` takes it. Without one the
    content decides, and a guest that writes to the volume controls the content: name it wherever it
    is known. `base` is an earlier state. `purpose`: any, allocated or delta. `block_size`: extents are
    rounded outward to multiples of it (0: 4096; None: the source's own). `time_limit`: seconds for
    all calls together.
    """
    if purpose not in _PURPOSES:
        raise ValueError(f"purpose {purpose!r}: expected one of {', '.join(_PURPOSES)}")
    if time_limit is not None and not 0.001 <= time_limit <= 1e9:
        raise ValueError(f"time_limit {time_limit}: expected seconds, from 0.001 on")
    # The structure points to them.
    texts = text_of(format), ffi.NULL if base is None else path_of(base)
    options = sized("cbt_source_options", format=texts[0], base=texts[1], purpose=_PURPOSES[purpose],
                    by_extents=int(by_extents), capacity=size_of(capacity, "capacity"),
                    base_capacity=size_of(base_capacity, "base_capacity"),
                    block_size=(1 << 64) - 1 if block_size is None else size_of(block_size, "block_size"),
                    time_limit_ms=0 if time_limit is None else int(time_limit * 1000))
    return Cursor(make("cbt_cursor", lib.cbt_source_open, path_of(os.fspath(address)), options))
