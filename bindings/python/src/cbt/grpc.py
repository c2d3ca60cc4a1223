"""The service on a server of grpcio, and a client on its channels: `pip install cbt[grpc]`.

Messages pass as bytes: no generated code is needed, and none is in the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import grpc

from cbt._checker import Checker, Proof, Tuples
from cbt._errors import DataLossError, Error, error_of
from cbt._stream import Provider, Request, Service, Stream

__all__ = ["RemoteStream", "add_service", "read_allocated", "read_delta"]

_CODES = {code.value[0]: code for code in grpc.StatusCode}
_ALLOCATED = "/csi.v1.SnapshotMetadata/GetMetadataAllocated"
_DELTA = "/csi.v1.SnapshotMetadata/GetMetadataDelta"
_SOURCE_VERSION = "cbt-source-version"

# --- Serving


def add_service(server: grpc.Server, service: Service) -> None:
    """Serves `service` on `server`, beside whatever else it serves."""
    handlers = {}
    for method in service.methods:
        if method.startswith("/csi.v1.SnapshotMetadata/"):
            handlers[method] = grpc.unary_stream_rpc_method_handler(_streaming(service, method))
        else:
            handlers[method] = grpc.unary_unary_rpc_method_handler(_unary(service, method))
    server.add_generic_rpc_handlers((_Handlers(handlers),))


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, handlers: Mapping[str, grpc.RpcMethodHandler]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._handlers.get(handler_call_details.method)


def _open(service: Service, method: str, request: bytes, context: grpc.ServicerContext) -> Stream:
    import time

    left = context.time_remaining()
    stream = service.open(method, request, deadline=None if left is None else time.time() + left)
    # The client's end stops the engine; a call that has ended already has no one to stop for.
    if not context.add_callback(stream.cancel):
        stream.cancel()
    return stream


def _abort(context: grpc.ServicerContext, error: Error) -> NoReturn:
    context.abort(_CODES[int(error.code)], str(error))
    raise AssertionError("abort() returned")


def _streaming(service: Service, method: str) -> Callable[[bytes, grpc.ServicerContext], Iterator[bytes]]:
    def serve(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        try:
            with _open(service, method, request, context) as stream:
                first = True
                for message in stream:
                    if first:
                        context.send_initial_metadata(stream.initial_metadata)
                        first = False
                    yield message
                context.set_trailing_metadata(stream.trailing_metadata)
        except Error as error:
            _abort(context, error)

    return serve


def _unary(service: Service, method: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def serve(request: bytes, context: grpc.ServicerContext) -> bytes:
        try:
            with _open(service, method, request, context) as stream:
                (message,) = stream
                return message
        except Error as error:
            _abort(context, error)

    return serve


# --- Asking


class RemoteStream(Iterator[Tuples]):
    """The messages of one call, checked. The loop ends when the answer is complete; everything else raises.

    After an error `resume_offset` is where to ask again, with the same `source_version`: a different
    one is a different answer.
    """

    def __init__(self, call: Any, checker: Checker) -> None:
        """Not for callers: use read_allocated() or read_delta()."""
        self._call, self._checker = call, checker
        self._failure: BaseException | None = None
        # What the server's proof says, once the loop has ended.
        self.proof: Proof | None = None

    def __next__(self) -> Tuples:
        if self._failure is not None:
            raise self._failure
        if self.proof is not None:
            raise StopIteration
        try:
            try:
                message = next(self._call, None)
            except grpc.RpcError as error:
                raise error_of(error.code().value[0], error.details() or "") from error
            if message is not None:
                return self._checker.message(message)
            if self._call.code() is not grpc.StatusCode.OK:
                raise error_of(self._call.code().value[0], self._call.details() or "")
            self.proof = self._checker.finish(self._call.trailing_metadata())
        except BaseException as failure:
            self._failure = failure
            self._call.cancel()
            raise
        raise StopIteration

    @property
    def resume_offset(self) -> int:
        """The end of the last tuple, or the starting offset."""
        return self._checker.resume_offset

    @property
    def source_version(self) -> str | None:
        """What the data was read from, if the server says. Blocks until the server has answered."""
        found = [value for key, value in self._call.initial_metadata() or () if key == _SOURCE_VERSION]
        if len(found) > 1:
            raise DataLossError(f"the server sent {len(found)} versions of the source")
        return found[0] if found else None

    def cancel(self) -> None:
        """Ends the call. The loop raises CancelledError."""
        self._call.cancel()

    def __enter__(self) -> RemoteStream:
        return self

    def __exit__(self, *_: object) -> None:
        self._call.cancel()


def read_allocated(channel: grpc.Channel, snapshot: str, *, starting_offset: int = 0, max_results: int = 0,
                   secrets: Mapping[str, str] | None = None, require_proof: bool = False,
                   timeout: float | None = None, metadata: Sequence[tuple[str, str]] | None = None) -> RemoteStream:
    """What is allocated in a snapshot. `timeout`: seconds for the call. `require_proof`: the end raises without one."""
    request, checker = _ask([snapshot], starting_offset, max_results, secrets, require_proof)
    return RemoteStream(channel.unary_stream(_ALLOCATED)(request, timeout=timeout, metadata=metadata), checker)


def read_delta(channel: grpc.Channel, base: str, target: str, *, starting_offset: int = 0, max_results: int = 0,
               secrets: Mapping[str, str] | None = None, require_proof: bool = False, timeout: float | None = None,
               metadata: Sequence[tuple[str, str]] | None = None) -> RemoteStream:
    """What changed between two snapshots of a volume; otherwise the same."""
    request, checker = _ask([base, target], starting_offset, max_results, secrets, require_proof)
    return RemoteStream(channel.unary_stream(_DELTA)(request, timeout=timeout, metadata=metadata), checker)


def _ask(snapshots: Sequence[str], starting_offset: int, max_results: int, secrets: Mapping[str, str] | None,
         require_proof: bool) -> tuple[bytes, Checker]:
    """The message of a request, and the checker of its answer."""
    if not 0 <= starting_offset < 1 << 63:
        raise ValueError(f"starting_offset {starting_offset}: out of range")
    if not 0 <= max_results < 1 << 31:
        raise ValueError(f"max_results {max_results}: out of range")
    checker = Checker(starting_offset=starting_offset, max_results=max_results, require_proof=require_proof)
    number = len(snapshots)
    request = b"".join(_text(at, value) for at, value in enumerate(snapshots, 1))
    request += _number(number + 1, starting_offset) + _number(number + 2, max_results)
    for key, value in (secrets or {}).items():
        request += _bytes(number + 3, _text(1, key) + _text(2, value))
    return request, checker


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


# For annotations of providers in the same import.
__all__ += ["Provider", "Request", "Service"]
