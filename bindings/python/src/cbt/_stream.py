"""csi.v1.SnapshotMetadata as a state machine: request bytes in, response bytes out.

cbt.grpc registers it with a server of grpcio; other libraries call Service and Stream.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Protocol, Self

from cbt._border import call, disown, forget, keep, kept, make, note_failure, run_callback, size_of, sized, text_of
from cbt._checker import BlockMetadataType
from cbt._cursor import Cursor
from cbt._errors import FailedPreconditionError, InternalError
from cbt._native import ffi, lib

_MESSAGE, _YIELD = 1, 2


class Answer(NamedTuple):
    """What a provider answers."""

    # The extents; its capacity is the size of the target snapshot. The answer takes it.
    cursor: Cursor
    # Blocks of this size in bytes (FIXED_LENGTH); 0: extents.
    block_size: int = 0
    # A text that differs whenever the answer may differ, and is the same after a restart: a client
    # that resumes notices that a snapshot was replaced in between.
    version: str | None = None
    # The data may change while `version` stays the same, as with block devices.
    may_change: bool = False


class Request:
    """What else a client asks with. Valid during the provider's method that gets it."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def secret(self, key: str) -> str | None:
        """A secret of the request, which must reach no log and no message."""
        size = ffi.new("uint64_t*")
        value = lib.cbt_request_secret_borrowed(self._valid(), text_of(key), size)
        return None if value == ffi.NULL else ffi.buffer(value, size[0])[:].decode()

    @property
    def cancelled(self) -> bool:
        """Whether the client has gone. For methods that take long."""
        return bool(lib.cbt_request_cancelled(self._valid()))

    def _valid(self) -> Any:
        if self._request is None:
            raise ValueError("the request is valid during the provider's method only")
        return self._request


class Provider(Protocol):
    """What a plugin implements. Several threads may call it at once.

    To fail raise one of cbt.Error, whose code and message the client sees: InvalidArgumentError for
    snapshots of different volumes, NotFoundError, FailedPreconditionError without change tracking,
    UnavailableError for a snapshot that is not ready. Of other exceptions it sees INTERNAL and their
    type.
    """

    def allocated(self, target: str, request: Request) -> Answer | Cursor:
        """What is allocated in the snapshot `target`."""

    def delta(self, base: str, target: str, request: Request) -> Answer | Cursor:
        """What changed from `base` to `target`."""


class Service:
    """A provider as a service. Any number of threads may use it.

    `plugin_name` (and `vendor_version`): it answers csi.v1.Identity too. `message_bytes`: of one
    message at most. The rest reshapes extents, 0: not at all; see cbt/c/stream.h.
    """

    def __init__(self, provider: Provider, *, plugin_name: str | None = None, vendor_version: str | None = None,
                 message_bytes: int = 0, type: BlockMetadataType | None = None, block_size: int = 0,
                 alignment: int = 0, coalesce_gap: int = 0, max_extent: int = 0) -> None:
        texts = text_of(plugin_name), text_of(vendor_version)
        options = sized("cbt_service_options", plugin_name=texts[0], vendor_version=texts[1],
                        message_bytes=size_of(message_bytes, "message_bytes"), type=int(type or 0),
                        block_size=size_of(block_size, "block_size"), alignment=size_of(alignment, "alignment"),
                        coalesce_gap=size_of(coalesce_gap, "coalesce_gap"),
                        max_extent=size_of(max_extent, "max_extent"))
        callbacks = ffi.new("cbt_provider*")
        number = keep(provider)
        lib.cbt_py_fill_provider(callbacks, number)
        try:
            self._handle = make("cbt_service", lib.cbt_service_new, callbacks, options)
        except BaseException:
            forget(number)
            raise

    @property
    def methods(self) -> list[str]:
        """The methods to register. Those of SnapshotMetadata are server-streaming, those of Identity unary."""
        found: list[str] = []
        while (name := lib.cbt_service_method_borrowed(self._handle, len(found))) != ffi.NULL:
            found.append(ffi.string(name).decode())
        return found

    def open(self, method: str, request: bytes, *, deadline: float | None = None, slice_us: int = 0) -> Stream:
        """Serves one call: `request` is its message.

        `deadline`: when the client stops waiting, in seconds since 1970. `slice_us`: next_message()
        returns None after this time; 0: it waits until there is a message.
        """
        options = sized("cbt_stream_options", deadline_ns=_nanoseconds(deadline),
                        slice_us=size_of(slice_us, "slice_us"))
        return Stream(make("cbt_stream", lib.cbt_stream_open, self._handle, text_of(method), request, len(request),
                           options))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a service can't be pickled or copied")


class Stream(Iterator[bytes]):
    """One call: its messages in order. It ends with StopIteration when everything was sent; a failure raises.

    One thread at a time may use it, but for cancel().
    """

    def __init__(self, handle: Any) -> None:
        """Not for callers: use Service.open()."""
        self._handle = handle
        self._lock = threading.Lock()

    def __next__(self) -> bytes:
        while True:
            message = self.next_message()
            if message is not None:
                return message

    def next_message(self) -> bytes | None:
        """The next message; None when a slice of time is over: call again. StopIteration: everything was sent."""
        message = ffi.new("cbt_message*")
        handle = self._alone()
        try:
            call(lib.cbt_stream_next, handle, message)
            # The bytes are lent until the next call.
            data = bytes(ffi.buffer(message.data, message.size)) if message.state == _MESSAGE else None
        finally:
            self._lock.release()
        if data is None and message.state != _YIELD:
            raise StopIteration
        return data

    @property
    def initial_metadata(self) -> list[tuple[str, str]]:
        """To send before the first message; known once there is one."""
        return self._metadata(0)

    @property
    def trailing_metadata(self) -> list[tuple[str, str]]:
        """To send with the end; known once everything was sent."""
        return self._metadata(1)

    def cancel(self) -> None:
        """Makes the stream fail with CANCELLED, soon also in a call that runs. From any thread, any number of times."""
        handle = self._handle
        if handle is not None:
            lib.cbt_stream_cancel(handle)

    def close(self) -> None:
        """Frees it. Any number of times."""
        self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream can't be pickled or copied")

    def _metadata(self, which: int) -> list[tuple[str, str]]:
        entries, count = ffi.new("cbt_metadata const**"), ffi.new("uint64_t*")
        handle = self._alone()
        try:
            call(lib.cbt_stream_metadata_borrowed, handle, which, entries, count)
            return [(ffi.string(entries[0][i].key).decode(), ffi.string(entries[0][i].value).decode())
                    for i in range(count[0])]
        finally:
            self._lock.release()

    def _alone(self) -> Any:
        if not self._lock.acquire(blocking=False):
            raise FailedPreconditionError("the stream is in use by another thread")
        handle = self._handle
        if handle is None:
            self._lock.release()
            raise ValueError("the stream is closed")
        return handle


def _nanoseconds(deadline: float | None) -> int:
    # Some libraries say "never" with a time that no clock reaches. 0 means that to the engine, so a
    # time before 1970 is the first nanosecond of it.
    if deadline is None or deadline >= 9e9:
        return 0
    return max(1, int(deadline * 1e9))


def _borrowed(function: Any, request: Any) -> str | None:
    size = ffi.new("uint64_t*")
    text = function(request, size)
    return None if text == ffi.NULL else ffi.buffer(text, size[0])[:].decode()


@ffi.def_extern(error=0, onerror=note_failure)  # type: ignore[untyped-decorator]
def cbt_py_open(number: int, request: Any, answer: Any, error: Any) -> int:
    def body() -> None:
        provider = kept(number)
        base = _borrowed(lib.cbt_request_base_borrowed, request)
        target = _borrowed(lib.cbt_request_target_borrowed, request)
        asked = Request(request)
        try:
            given = provider.allocated(target, asked) if base is None else provider.delta(base, target, asked)
        finally:
            asked._request = None
        if isinstance(given, Cursor):
            given = Answer(given)
        if not isinstance(given, Answer):
            raise InternalError(f"the provider returned {type(given).__name__}, not an Answer or a Cursor")
        if given.block_size:
            call(lib.cbt_answer_set_blocks, answer, size_of(given.block_size, "block_size"))
        if given.version is not None:
            version = given.version.encode()
            call(lib.cbt_answer_set_version, answer, version, len(version), int(given.may_change))
        call(lib.cbt_answer_set_cursor, answer, disown(given.cursor._take()))

    return run_callback(error, body)
