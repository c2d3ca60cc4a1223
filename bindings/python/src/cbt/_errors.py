"""Errors: one class for each code, with the numbers of gRPC."""

from __future__ import annotations

import enum
from typing import ClassVar


class Code(enum.IntEnum):
    """The outcome of a call, with the numbers of gRPC's status codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Error(Exception):
    """A call that failed. `code` is one of the class; a callback raises one to fail with its code."""

    code: ClassVar[Code] = Code.UNKNOWN


class CancelledError(Error):
    code = Code.CANCELLED


class UnknownError(Error):
    code = Code.UNKNOWN


class InvalidArgumentError(Error, ValueError):
    code = Code.INVALID_ARGUMENT


class DeadlineExceededError(Error):
    code = Code.DEADLINE_EXCEEDED


class NotFoundError(Error):
    code = Code.NOT_FOUND


class AlreadyExistsError(Error):
    code = Code.ALREADY_EXISTS


class PermissionDeniedError(Error):
    code = Code.PERMISSION_DENIED


class ResourceExhaustedError(Error):
    code = Code.RESOURCE_EXHAUSTED


class FailedPreconditionError(Error):
    code = Code.FAILED_PRECONDITION


class AbortedError(Error):
    code = Code.ABORTED


class OutOfRangeError(Error):
    code = Code.OUT_OF_RANGE


class UnimplementedError(Error):
    code = Code.UNIMPLEMENTED


class InternalError(Error):
    code = Code.INTERNAL


class UnavailableError(Error):
    code = Code.UNAVAILABLE


class DataLossError(Error):
    code = Code.DATA_LOSS


class UnauthenticatedError(Error):
    code = Code.UNAUTHENTICATED


class IncompleteError(FailedPreconditionError):
    """A `with` block ended before its answer was complete: what was read is a part of it."""


_CLASSES: dict[int, type[Error]] = {
    kind.code: kind
    for kind in (
        CancelledError, UnknownError, InvalidArgumentError, DeadlineExceededError, NotFoundError, AlreadyExistsError,
        PermissionDeniedError, ResourceExhaustedError, FailedPreconditionError, AbortedError, OutOfRangeError,
        UnimplementedError, InternalError, UnavailableError, DataLossError, UnauthenticatedError,
    )
}


def error_of(code: int, message: str) -> Error:
    """An error of the class that belongs to `code`."""
    return _CLASSES.get(code, UnknownError)(message)
