"""Change maps: the set of changed blocks between two snapshots."""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from cbt._border import (
    Int64Array,
    Path,
    bytes_of,
    call,
    extents_of,
    geometry_of,
    make,
    path_of,
    size_of,
    sized,
    text_of,
)
from cbt._cursor import Cursor, Geometry, _Use
from cbt._errors import FailedPreconditionError
from cbt._native import ffi, lib

if TYPE_CHECKING:
    from typing_extensions import Buffer


class ChangeMap:
    """Which blocks changed, roaring-compressed, with the names of volume, base and target.

    Constant: any number of threads may use one.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, handle: Any) -> None:
        """Not for callers: use the class methods, a builder or a tracker."""
        self._handle = handle
        info = sized("cbt_map_info")
        call(lib.cbt_map_get_info, handle, info)
        self.geometry = Geometry(info.geometry.capacity, info.geometry.granularity)
        # Of what changed. The last block may be partial.
        self.blocks: int = info.blocks
        self.bytes: int = info.bytes
        # Of neighbouring blocks; a cursor returns one extent for each.
        self.runs: int = info.runs
        self.volume, self.base, self.target = (
            ffi.string(lib.cbt_map_name_borrowed(handle, which)).decode("utf-8", "surrogateescape") for which in range(3))

    # --- Making maps

    @classmethod
    def from_cursor(cls, cursor: Cursor, granularity: int = 0, *, volume: str = "", base: str = "",
                    target: str = "") -> Self:
        """Everything that `cursor` reports, rounded outward to `granularity` bytes (0: the cursor's).

        The cursor can be read again.
        """
        with _Use(cursor) as handle:
            cursor._reading, cursor._begun = None, False
            made = make("cbt_map", lib.cbt_map_from_cursor, handle, size_of(granularity, "granularity"))
        return cls(_named(made, volume, base, target))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Maps a file into memory and checks all of it. It must not be modified in place; save() replaces files."""
        return cls(make("cbt_map", lib.cbt_map_load, path_of(path)))

    @classmethod
    def decode(cls, file: Buffer) -> Self:
        """The map in the bytes of a file."""
        data = ffi.from_buffer("uint8_t[]", memoryview(file))
        return cls(make("cbt_map", lib.cbt_map_decode, data, len(data)))

    @classmethod
    def from_portable(cls, portable: Buffer, capacity: int, granularity: int, *, bits: int = 64, volume: str = "",
                      base: str = "", target: str = "", copy: bool | None = None) -> Self:
        """A map in the portable serialisation of roaring bitmaps with 64 or 32 bits.

        `copy` as in Cursor.from_bitmap().
        """
        made = make("cbt_map", lib.cbt_map_from_portable, bytes_of(portable, copy), bits,
                    geometry_of(capacity, granularity))
        return cls(_named(made, volume, base, target))

    def with_names(self, volume: str = "", base: str = "", target: str = "") -> ChangeMap:
        """The same changes with other names."""
        made = make("cbt_map", lib.cbt_map_with_geometry, self._handle, geometry_of(*self.geometry))
        return ChangeMap(_named(made, volume, base, target))

    def with_geometry(self, capacity: int, granularity: int) -> ChangeMap:
        """The map in blocks of `granularity` bytes, rounded outward, for a volume of `capacity` bytes.

        What lies past the map's own end counts as changed. Without names.
        """
        return ChangeMap(make("cbt_map", lib.cbt_map_with_geometry, self._handle, geometry_of(capacity, granularity)))

    # --- Reading

    @property
    def capacity(self) -> int:
        """The size of the volume in bytes."""
        return self.geometry.capacity

    @property
    def granularity(self) -> int:
        """The size of a block in bytes."""
        return self.geometry.granularity

    def __contains__(self, block: int) -> bool:
        """Whether the block with this index changed."""
        index = operator.index(block)
        return 0 <= index < 1 << 64 and lib.cbt_map_contains(self._handle, index) != 0

    def cursor(self) -> Cursor:
        """The extents of the map."""
        return Cursor.from_map(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The extents as an Arrow stream, any number of times."""
        return self.cursor().__arrow_c_stream__()

    def to_portable(self, bits: int = 64) -> bytes:
        """The portable serialisation of roaring bitmaps with 64 or 32 bits."""
        return _copy(make("cbt_bytes", lib.cbt_map_to_portable, self._handle, bits))

    # --- Algebra. Results have no names.

    @staticmethod
    def union(*maps: ChangeMap) -> ChangeMap:
        """What is in any of the maps."""
        handles = [each._handle for each in maps]
        return ChangeMap(make("cbt_map", lib.cbt_map_union, handles, len(handles)))

    def __or__(self, other: ChangeMap) -> ChangeMap:
        return ChangeMap.union(self, other) if isinstance(other, ChangeMap) else NotImplemented

    def __and__(self, other: ChangeMap) -> ChangeMap:
        return self._with(lib.cbt_map_intersection, other)

    def __sub__(self, other: ChangeMap) -> ChangeMap:
        """What is here and not in `other`, which must be exact."""
        return self._with(lib.cbt_map_difference, other)

    def __xor__(self, other: ChangeMap) -> ChangeMap:
        return self._with(lib.cbt_map_symmetric_difference, other)

    def __eq__(self, other: object) -> bool:
        """The same geometry and the same blocks. Names don't count."""
        if not isinstance(other, ChangeMap):
            return NotImplemented
        return bool(lib.cbt_map_equal(self._handle, other._handle))

    def _with(self, function: Any, other: ChangeMap) -> ChangeMap:
        if not isinstance(other, ChangeMap):
            return NotImplemented
        return ChangeMap(make("cbt_map", function, self._handle, other._handle))

    # --- Files

    def save(self, path: Path, *, sync: bool = True) -> None:
        """Writes a .cbm file: after any failure the path is as it was. `sync`: waits for the disk."""
        call(lib.cbt_map_save, self._handle, path_of(path), int(not sync))

    def encode(self) -> bytes:
        """The bytes of a file."""
        return _copy(make("cbt_bytes", lib.cbt_map_encode, self._handle))

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return ChangeMap.decode, (self.encode(),)

    def __repr__(self) -> str:
        names = "" if not self.target else f" of {self.volume} from {self.base} to {self.target}"
        return f"<cbt.ChangeMap{names}: {self.bytes} of {self.capacity} bytes in {self.runs} runs>"


class MapBuilder:
    """Collects changes in any order. One thread at a time may use it."""

    def __init__(self, capacity: int, granularity: int) -> None:
        self._handle = make("cbt_map_builder", lib.cbt_map_builder_new, geometry_of(capacity, granularity))
        self._lock = threading.Lock()

    def add(self, offsets: int | Iterable[int] | Int64Array, lengths: int | Iterable[int] | Int64Array) -> None:
        """Adds the blocks that hold a byte of an extent, or of each of two arrays."""
        if isinstance(offsets, int) and isinstance(lengths, int):
            offsets, lengths = [offsets], [lengths]
        first, second, count, _keep = extents_of(offsets, lengths)
        self._call(lambda handle: call(lib.cbt_map_builder_add, handle, first, second, count))

    def build(self, *, volume: str = "", base: str = "", target: str = "") -> ChangeMap:
        """The map of everything that was added. The builder is empty afterwards."""
        made = self._call(lambda handle: make("cbt_map", lib.cbt_map_builder_build, handle))
        return ChangeMap(_named(made, volume, base, target))

    def close(self) -> None:
        """Frees it. Any number of times."""
        self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a builder can't be pickled or copied")

    def _call(self, body: Any) -> Any:
        if not self._lock.acquire(blocking=False):
            raise FailedPreconditionError("the builder is in use by another thread")
        try:
            if self._handle is None:
                raise ValueError("the builder is closed")
            return body(self._handle)
        finally:
            self._lock.release()


def _named(handle: Any, volume: str, base: str, target: str) -> Any:
    # No one else has the handle yet.
    if volume or base or target:
        texts = text_of(volume), text_of(base), text_of(target)
        call(lib.cbt_map_set_identity, handle, *texts)
    return handle


def _copy(handle: Any) -> bytes:
    return bytes(ffi.buffer(lib.cbt_bytes_data_borrowed(handle), lib.cbt_bytes_size(handle)))
