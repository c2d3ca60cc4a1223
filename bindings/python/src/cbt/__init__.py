"""Changed-block tracking: cursors over changed blocks, change maps, chains, trackers, and the streams
of csi.v1.SnapshotMetadata.

A loop over a cursor has an answer when it ends; whatever goes wrong raises one of cbt.Error:

    with cbt.open_source("tuesday.img", "image", base="monday.img") as cursor:
        for batch in cursor:
            use(batch.offsets, batch.lengths)

Offsets, lengths, capacities and sizes are bytes. The interpreter's lock is released in every call.
"""

from cbt._chain import Chain, Snapshot
from cbt._checker import BlockMetadataType, Checker, Proof, Tuples
from cbt._cursor import Batch, Cursor, Extents, ExtentSource, Geometry, open_source
from cbt._errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    Code,
    DataLossError,
    DeadlineExceededError,
    Error,
    FailedPreconditionError,
    IncompleteError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
    UnknownError,
)
from cbt._map import ChangeMap, MapBuilder
from cbt._native import ffi as _ffi
from cbt._native import lib as _lib
from cbt._stream import Answer, Provider, Request, Service, Stream
from cbt._tracker import Epoch, Tracker, Write

__version__: str = _ffi.string(_lib.cbt_version_string()).decode()


def simd_level() -> str:
    """The instruction set that the kernels use: scalar, sse42, avx2, avx512 or neon."""
    return str(_ffi.string(_lib.cbt_simd_level()).decode())


__all__ = [
    "AbortedError", "AlreadyExistsError", "Answer", "Batch", "BlockMetadataType", "CancelledError", "Chain",
    "ChangeMap", "Checker", "Code", "Cursor", "DataLossError", "DeadlineExceededError", "Epoch", "Error",
    "ExtentSource", "Extents", "FailedPreconditionError", "Geometry", "IncompleteError", "InternalError",
    "InvalidArgumentError", "MapBuilder", "NotFoundError", "OutOfRangeError", "PermissionDeniedError", "Proof",
    "Provider", "Request", "ResourceExhaustedError", "Service", "Snapshot", "Stream", "Tracker", "Tuples",
    "UnauthenticatedError", "UnavailableError", "UnimplementedError", "UnknownError", "Write", "open_source",
    "simd_level",
]

# Messages and documents call them by the names that users import.
for _name in __all__:
    if isinstance(_value := globals()[_name], type):
        _value.__module__ = __name__
del _name, _value
