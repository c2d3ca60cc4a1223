"""PyCapsules of Arrow's C stream interface."""

from __future__ import annotations

import ctypes
from typing import Any

from cbt._border import call
from cbt._native import ffi, lib

_NAME = b"arrow_array_stream"
_new = ctypes.pythonapi.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


def export(cursor: Any, rows: int) -> object:
    """A capsule with a stream over the cursor's handle, which is consumed."""
    stream = lib.cbt_py_new_arrow()
    if stream == ffi.NULL:
        lib.cbt_cursor_free(cursor)
        raise MemoryError
    # From here on the capsule frees the stream, whatever happens.
    capsule: object = _new(int(ffi.cast("uintptr_t", stream)), _NAME,
                           int(ffi.cast("uintptr_t", lib.cbt_py_arrow_destructor())))
    call(lib.cbt_cursor_export_arrow, cursor, rows, stream)
    return capsule
