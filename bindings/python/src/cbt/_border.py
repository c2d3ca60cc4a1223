"""What every call across the border shares: errors, handles, memory of Python that the engine reads.

A handle is freed when nothing refers to it any more. So close() only forgets it: a call that another
thread makes with it meanwhile keeps it alive until it returns.
"""

from __future__ import annotations

import itertools
import logging
import operator
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cbt._errors import Error, InternalError, error_of
from cbt._native import ffi, lib

if TYPE_CHECKING:
    from typing_extensions import Buffer

Int64Array: TypeAlias = npt.NDArray[np.int64]
Path: TypeAlias = "str | bytes | os.PathLike[str] | os.PathLike[bytes]"
log = logging.getLogger("cbt")

# --- Calls


class _Failure(threading.local):
    """What a callback raised in this thread, until the call that ran it returns."""

    raised: BaseException | None = None


failed = _Failure()


def raise_error(code: int, error: Any) -> None:
    """Raises the error of a call that returned `code`."""
    raised, failed.raised = failed.raised, None
    message = ffi.string(lib.cbt_error_message_borrowed(error)).decode("utf-8", "replace")
    lib.cbt_error_free(error)
    if raised is not None and (not isinstance(raised, Exception) or getattr(raised, "code", None) == code):
        raise raised
    raise error_of(code, message) from raised


def raise_interrupt() -> None:
    """What ends a program, such as Ctrl-C in a callback, ends the call too, even one that had an answer."""
    raised, failed.raised = failed.raised, None
    if raised is not None and not isinstance(raised, Exception):
        raise raised


def call(function: Any, *arguments: Any) -> None:
    """Calls a function that returns a code and takes an error last."""
    error = ffi.new("cbt_error**")
    # Callbacks also run in calls that are not ours, such as those of a reader of an Arrow stream.
    failed.raised = None
    code = function(*arguments, error)
    if code:
        raise_error(code, error[0])
    if failed.raised is not None:
        raise_interrupt()


def make(kind: str, function: Any, *arguments: Any) -> Any:
    """The handle that a function writes to its last argument before the error."""
    out = ffi.new(f"{kind}**")
    call(function, *arguments, out)
    return ffi.gc(out[0], getattr(lib, f"{kind}_free"))


def disown(handle: Any) -> Any:
    """The handle, which the caller gives to a function that consumes it.

    Before that function is called: an interrupt in between loses memory, and never frees it twice.
    """
    ffi.gc(handle, None)
    return handle


def run_callback(error: Any, body: Callable[[], None]) -> int:
    """Runs a callback's body: 1 + the code that the engine gets."""
    try:
        body()
        return 1
    except BaseException as raised:  # nothing passes through C
        failed.raised = raised
        if isinstance(raised, Error):
            code, message = int(raised.code), str(raised)
        else:
            # Its text may hold what a client of a server must not see.
            code, message = int(InternalError.code), f"the callback raised {type(raised).__name__}"
            if isinstance(raised, Exception):
                log.error("a callback failed", exc_info=raised)
        data = message.encode("utf-8", "replace")
        error[0] = lib.cbt_error_new(code, data, len(data))
        return 1 + code


def note_failure(_kind: object, raised: BaseException, _trace: object) -> None:
    """For what is raised beside run_callback()'s body, as an interrupt may be: the engine gets INTERNAL."""
    failed.raised = raised


# --- What the engine keeps of Python's

_kept: dict[int, Any] = {}
_numbers = itertools.count(1)


def keep(thing: Any) -> int:
    """Keeps `thing` until the engine releases the number that this returns."""
    number = next(_numbers)
    _kept[number] = thing
    return number


def kept(number: int) -> Any:
    return _kept[number]


def forget(number: int) -> None:
    _kept.pop(number, None)


@ffi.def_extern()  # type: ignore[untyped-decorator]
def cbt_py_release(number: int) -> None:
    forget(number)


def bytes_of(data: Buffer, copy: bool | None) -> Any:
    """A cbt_bytes handle over a buffer.

    Without a copy the buffer stays exported while the engine uses it: it can't be resized, closed or
    unmapped.
    """
    view = memoryview(data)
    if not view.c_contiguous:
        raise ValueError("the buffer is not contiguous; copy it first, as by bytes() or numpy.ascontiguousarray()")
    if copy is None:
        copy = _may_change(view)
    memory = ffi.from_buffer("uint8_t[]", view)
    if copy:
        return make("cbt_bytes", lib.cbt_bytes_copy, memory, len(memory))
    # The view would be released with this frame; its export lives in `memory`.
    number = keep((memory, view))
    try:
        return make("cbt_bytes", lib.cbt_py_own, memory, len(memory), number)
    except BaseException:
        forget(number)
        raise


def _may_change(view: memoryview) -> bool:
    """Whether someone could write to the memory: a view that can't be written to may be one of memory that can."""
    if not view.readonly:
        return True
    owner: Any = view.obj
    # An array over a view that can't be written to has that view as its base.
    while isinstance(owner, (np.ndarray, memoryview)):
        if isinstance(owner, memoryview):
            writable, owner = not owner.readonly, owner.obj
        else:
            writable, owner = owner.flags.writeable, owner.base
        if writable:
            return True
    try:
        return owner is not None and not memoryview(owner).readonly
    except TypeError:
        return True


def size_of(number: int, name: str) -> int:
    """A number of bytes that fits the interface."""
    value = operator.index(number)
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{name}: {value} is out of range")
    return value


def uint64_array(values: Any, name: str) -> npt.NDArray[np.uint64]:
    """The values as a contiguous array of uint64, without a copy where they are one."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, not {array.ndim}")
    if array.size == 0:
        return np.empty(0, np.uint64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers, not {array.dtype}")
    if array.dtype.kind == "i" and int(array.min()) < 0:
        raise ValueError(f"{name}: {int(array.min())} is negative")
    if array.dtype == np.int64:
        return np.ascontiguousarray(array).view(np.uint64)
    return np.ascontiguousarray(array, np.uint64)


def extents_of(offsets: Any, lengths: Any) -> tuple[Any, Any, int, Any]:
    """(offsets, lengths, count, what keeps them alive), as C takes them."""
    first, second = uint64_array(offsets, "offsets"), uint64_array(lengths, "lengths")
    if len(first) != len(second):
        raise ValueError(f"{len(first)} offsets and {len(second)} lengths")
    return (ffi.from_buffer("uint64_t[]", first), ffi.from_buffer("uint64_t[]", second), len(first), (first, second))


def array_of(pointer: Any, count: int) -> Int64Array:
    """A copy of `count` numbers that the engine has lent."""
    if count == 0:
        return np.empty(0, np.int64)
    return np.frombuffer(ffi.buffer(pointer, count * 8), np.int64).copy()


def text_of(text: str | None) -> Any:
    """A NUL-terminated text, or NULL."""
    if text is None:
        return ffi.NULL
    encoded = text.encode()
    if b"\0" in encoded:
        raise ValueError("a text with a NUL in it")
    return ffi.new("char[]", encoded)


def path_of(path: Path) -> Any:
    encoded = os.fsencode(path)
    if b"\0" in encoded:
        raise ValueError("a path with a NUL in it")
    return ffi.new("char[]", encoded)


def geometry_of(capacity: int, granularity: int) -> Any:
    return ffi.new("cbt_geometry*", (size_of(capacity, "capacity"), size_of(granularity, "granularity")))


def sized(kind: str, **members: Any) -> Any:
    """A structure with a struct_size."""
    made = ffi.new(f"{kind}*")
    made.struct_size = ffi.sizeof(kind)
    for name, value in members.items():
        setattr(made, name, value)
    return made
