"""Chains: the change maps between neighbouring snapshots of a volume, and any delta from them."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

from cbt._border import Path, call, geometry_of, make, path_of, sized, text_of
from cbt._cursor import Cursor
from cbt._map import ChangeMap
from cbt._native import ffi, lib


class Snapshot(NamedTuple):
    """A snapshot of a chain, the size of the volume then, in bytes, and when it was taken: nanoseconds
    since 1970 (UTC), as time.time_ns() counts; None: not known."""

    id: str
    capacity: int
    time: int | None = None


# What the engine takes for a time that is not known.
_NO_TIME = -(2**63)


class Chain:
    """A chain as it was when opened, plus the changes made through this object.

    Threads may share it. One process at a time can have a chain open for changes; a child that it
    forks can't use it.
    """

    def __init__(self, handle: Any) -> None:
        """Not for callers: use create() or open()."""
        self._handle = handle
        # The engine allows calls that read beside one another, and those that change alone.
        self._lock = threading.Lock()

    @classmethod
    def create(cls, directory: Path, volume: str, first_id: str, capacity: int, granularity: int, *,
               time: int | None = None, sync: bool = True) -> Self:
        """Creates a chain whose first snapshot is `first_id`, taken at `time`. `sync`: changes wait for the disk."""
        return cls(make("cbt_chain", lib.cbt_chain_create_at, path_of(directory), text_of(volume), text_of(first_id),
                        geometry_of(capacity, granularity), _NO_TIME if time is None else time,
                        sized("cbt_chain_options", no_sync=int(not sync))))

    @classmethod
    def open(cls, directory: Path, *, change: bool = False, sync: bool = True) -> Self:
        """Opens a chain to read it, or to change it too."""
        return cls(make("cbt_chain", lib.cbt_chain_open, path_of(directory), int(change),
                        sized("cbt_chain_options", no_sync=int(not sync))))

    @property
    def snapshots(self) -> list[Snapshot]:
        """Oldest first."""
        found = []
        with self._lock:
            handle = self._open()
            name, capacity = ffi.new("char const**"), ffi.new("uint64_t*")
            known, time = ffi.new("int32_t*"), ffi.new("int64_t*")
            for index in range(lib.cbt_chain_count(handle)):
                call(lib.cbt_chain_snapshot_borrowed, handle, index, name, capacity)
                call(lib.cbt_chain_snapshot_time, handle, index, known, time)
                found.append(Snapshot(ffi.string(name[0]).decode("utf-8", "surrogateescape"), capacity[0],
                                      time[0] if known[0] else None))
        return found

    def append(self, change_map: ChangeMap, *, time: int | None = None) -> None:
        """Adds the snapshot `change_map.target`, taken at `time`: the map holds what changed since the newest
        one, its base."""
        with self._lock:
            call(lib.cbt_chain_append_at, self._open(), change_map._handle, _NO_TIME if time is None else time)

    def remove(self, snapshot: str) -> None:
        """Removes a snapshot at any position, but not the last one that is left."""
        with self._lock:
            call(lib.cbt_chain_remove, self._open(), text_of(snapshot))

    def delta(self, base: str, target: str) -> Cursor:
        """What changed from `base` to `target`."""
        with self._lock:
            return Cursor(make("cbt_cursor", lib.cbt_chain_delta, self._open(), text_of(base), text_of(target)))

    def verify(self) -> None:
        """Reads every file and compares it with the manifest."""
        with self._lock:
            call(lib.cbt_chain_verify, self._open())

    def close(self) -> None:
        """Frees it. Any number of times."""
        self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a chain can't be pickled or copied")

    def _open(self) -> Any:
        handle = self._handle
        if handle is None:
            raise ValueError("the chain is closed")
        return handle
