"""Live tracking: which blocks were written since a snapshot."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

from cbt._border import Int64Array, Path, call, extents_of, make, path_of, size_of, sized, text_of
from cbt._map import ChangeMap
from cbt._native import ffi, lib


class Epoch(NamedTuple):
    """A time between two snapshots."""

    base: str  # the snapshot at which it began
    closed: bool  # it ended, and its map is not acknowledged
    exact: bool  # False: a crash made it report more than was written


class Write:
    """A write in flight: `with tracker.writing(offset, length): os.pwrite(...)`. It ends with the block.

    One that is dropped without an end counts as in flight as long as the tracker exists: each epoch
    reports it.
    """

    __slots__ = ("_live", "_tracker")

    def __init__(self, tracker: Any, write: Any) -> None:
        self._tracker = tracker  # it must not be freed before the write ends
        self._live = [write]

    def end(self) -> None:
        """Its data is in the storage. Any number of times, from any thread."""
        try:
            write = self._live.pop()
        except IndexError:
            return
        lib.cbt_write_end(write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.end()

    # The object may be dropped while the storage still writes: only the caller knows the end.
    def __del__(self) -> None:
        if self._live:
            warnings.warn("a write was dropped without an end: it counts as in flight from now on", ResourceWarning,
                          source=self, stacklevel=1)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a write can't be pickled or copied")


class Tracker:
    """Counts writes as they happen. With a directory it survives the process.

    Threads may share it. It belongs to the process that created it: a child that this forks can't
    use it.
    """

    def __init__(self, handle: Any) -> None:
        """Not for callers: use create() or recover()."""
        self._handle = handle

    @classmethod
    def create(cls, volume: str, base: str, capacity: int, granularity: int, *, directory: Path | None = None,
               region_bytes: int = 0) -> Self:
        """A tracker in which nothing has changed since the snapshot `base`."""
        return cls._make(lib.cbt_tracker_create, volume, base, capacity, granularity, directory, region_bytes)

    @classmethod
    def recover(cls, volume: str, base: str, capacity: int, granularity: int, *, directory: Path,
                region_bytes: int = 0) -> Self:
        """The tracker that was left in `directory`, closed or not. Look at `epochs` then:

        one, open                      continue
        two, both open                 the process ended around a snapshot: if it was taken close the
                                       epoch, otherwise cancel it
        two, the first one closed      close the epoch to get its map again, store it, acknowledge it

        Call it only after writes of the old process have ended.
        """
        return cls._make(lib.cbt_tracker_recover, volume, base, capacity, granularity, directory, region_bytes)

    @classmethod
    def _make(cls, function: Any, volume: str, base: str, capacity: int, granularity: int, directory: Path | None,
              region_bytes: int) -> Self:
        texts = text_of(volume), text_of(base), ffi.NULL if directory is None else path_of(directory)
        options = sized("cbt_tracker_options", volume=texts[0], base=texts[1], directory=texts[2],
                        region_bytes=size_of(region_bytes, "region_bytes"))
        options.geometry.capacity = size_of(capacity, "capacity")
        options.geometry.granularity = size_of(granularity, "granularity")
        return cls(make("cbt_tracker", function, options))

    # --- Writes

    def writing(self, offset: int, length: int) -> Write:
        """Announces a write before it is issued. If this raises, the write must not be issued."""
        handle = self._open()
        write = ffi.new("cbt_write*")
        call(lib.cbt_tracker_begin, handle, size_of(offset, "offset"), size_of(length, "length"), write)
        return Write(handle, write)

    def mark(self, offsets: int | Iterable[int] | Int64Array, lengths: int | Iterable[int] | Int64Array) -> None:
        """The same without an end, for callers that keep writes and snapshots apart.

        None of these writes may be in flight between opening and closing an epoch.
        """
        if isinstance(offsets, int) and isinstance(lengths, int):
            offsets, lengths = [offsets], [lengths]
        first, second, count, _keep = extents_of(offsets, lengths)
        call(lib.cbt_tracker_mark, self._open(), first, second, count)

    # --- Snapshots

    def open_epoch(self, name: str) -> None:
        """Begins an epoch at the snapshot `name`. Take the snapshot after this returns."""
        call(lib.cbt_tracker_open_epoch, self._open(), text_of(name))

    def close_epoch(self) -> ChangeMap:
        """Ends the older epoch: the map of what changed in it, which is returned again until it is acknowledged."""
        return ChangeMap(make("cbt_map", lib.cbt_tracker_close_epoch, self._open()))

    def acknowledge(self, change_map: ChangeMap) -> None:
        """The caller has stored the map: the tracker may forget it."""
        call(lib.cbt_tracker_acknowledge, self._open(), change_map._handle)

    def cancel_epoch(self) -> None:
        """Drops the newer epoch because its snapshot was not taken."""
        call(lib.cbt_tracker_cancel_epoch, self._open())

    def changes(self) -> ChangeMap:
        """What has changed in the oldest open epoch so far."""
        return ChangeMap(make("cbt_map", lib.cbt_tracker_changes, self._open()))

    @property
    def epochs(self) -> list[Epoch]:
        """One or two, oldest first."""
        handle, found = self._open(), []
        for index in range(lib.cbt_tracker_epochs(handle)):
            epoch = sized("cbt_epoch")
            call(lib.cbt_tracker_epoch, handle, index, epoch)
            name = make("cbt_bytes", lib.cbt_tracker_epoch_base, handle, index)
            base = bytes(ffi.buffer(lib.cbt_bytes_data_borrowed(name), lib.cbt_bytes_size(name)))
            found.append(Epoch(base.decode("utf-8", "surrogateescape"), epoch.closed != 0, epoch.exact != 0))
        return found

    # --- Life

    def checkpoint(self) -> None:
        """Saves the exact state: a crash over-reports only what is written from now on."""
        call(lib.cbt_tracker_checkpoint, self._open())

    def close(self) -> None:
        """Saves the exact state and ends tracking. Any number of times."""
        if self._handle is not None:
            call(lib.cbt_tracker_close, self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a tracker can't be pickled or copied")

    def _open(self) -> Any:
        handle = self._handle
        if handle is None:
            raise ValueError("the tracker is closed")
        return handle
