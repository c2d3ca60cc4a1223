"""cbt.grpc for programs with asyncio: the service on a server of grpc.aio, and a client on its channels."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from cbt._checker import Checker, Proof, Tuples
from cbt._errors import DataLossError, Error, error_of
from cbt._stream import Service, Stream
from cbt.grpc import _ALLOCATED, _CODES, _DELTA, _SOURCE_VERSION, _ask, _Handlers

__all__ = ["RemoteStream", "add_service", "read_allocated", "read_delta"]

# --- Serving


def add_service(server: grpc.aio.Server, service: Service, executor: concurrent.futures.Executor | None = None) -> None:
    """Serves `service` on `server`, beside whatever else it serves.

    Messages are made, and the provider is called, in threads of `executor` (None: of the loop's own),
    one at a time for each call: the loop never waits for storage.

    Interceptors see handlers of calls that stream their requests. grpc.aio leaves a call of the other
    kind without an answer where it ends before its message.
    """
    handlers = {}
    for method in service.methods:
        if method.startswith("/csi.v1.SnapshotMetadata/"):
            handlers[method] = grpc.stream_stream_rpc_method_handler(_streaming(service, method, executor))
        else:
            handlers[method] = grpc.stream_unary_rpc_method_handler(_unary(service, method, executor))
    server.add_generic_rpc_handlers((_Handlers(handlers),))


async def _only(requests: AsyncIterator[bytes], context: Any) -> bytes:
    """The message of a call."""
    async for request in requests:
        return request
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call ended before its request")
    raise AssertionError("abort() returned")


# A change of threads costs more than a small message: one brings messages for so long, or so many bytes.
_SECONDS, _BYTES = 0.005, 1 << 18


def _some(stream: Stream) -> tuple[list[bytes], Error | StopIteration | None]:
    """The next messages, and what ended them: the end, a failure, or nothing yet."""
    messages: list[bytes] = []
    size, until = 0, time.monotonic() + _SECONDS
    try:
        while not messages or (size < _BYTES and time.monotonic() < until):
            messages.append(next(stream))
            size += len(messages[-1])
    except (Error, StopIteration) as end:
        return messages, end
    return messages, None


def _streaming(service: Service, method: str,
               executor: concurrent.futures.Executor | None) -> Callable[[AsyncIterator[bytes], Any], AsyncIterator[bytes]]:
    async def serve(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        request = await _only(requests, context)
        left = context.time_remaining()
        stream: Stream | None = None
        try:
            stream = service.open(method, request, deadline=None if left is None else time.time() + left)
            first, failure = True, None
            while failure is None:
                messages, failure = await asyncio.get_running_loop().run_in_executor(executor, _some, stream)
                if first and messages:
                    await context.send_initial_metadata(stream.initial_metadata)
                    first = False
                for message in messages:
                    yield message
            if isinstance(failure, Error):
                raise failure
            context.set_trailing_metadata(stream.trailing_metadata)
        except Error as error:
            await context.abort(_CODES[int(error.code)], str(error))
        finally:
            # Where the client has gone, a thread may still be in the engine.
            if stream is not None:
                stream.cancel()

    return serve


def _unary(service: Service, method: str,
           executor: concurrent.futures.Executor | None) -> Callable[[AsyncIterator[bytes], Any], Awaitable[bytes]]:
    stream = _streaming(service, method, executor)

    async def serve(requests: AsyncIterator[bytes], context: Any) -> bytes:
        message, = [message async for message in stream(requests, context)]
        return message

    return serve


# --- Asking


class RemoteStream(AsyncIterator[Tuples]):
    """The messages of one call, checked: `async for`. As cbt.grpc.RemoteStream."""

    def __init__(self, call: Any, checker: Checker) -> None:
        """Not for callers: use read_allocated() or read_delta()."""
        self._call, self._checker = call, checker
        self._failure: BaseException | None = None
        # What the server's proof says, once the loop has ended.
        self.proof: Proof | None = None

    async def __anext__(self) -> Tuples:
        if self._failure is not None:
            raise self._failure
        if self.proof is not None:
            raise StopAsyncIteration
        try:
            try:
                message = await self._call.read()
            except grpc.aio.AioRpcError as error:
                raise error_of(error.code().value[0], error.details() or "") from error
            if message is not grpc.aio.EOF:
                return self._checker.message(message)
            code = await self._call.code()
            if code is not grpc.StatusCode.OK:
                raise error_of(code.value[0], await self._call.details() or "")
            self.proof = self._checker.finish(await self._call.trailing_metadata())
        except BaseException as failure:
            self._failure = failure
            self._call.cancel()
            raise
        raise StopAsyncIteration

    @property
    def resume_offset(self) -> int:
        """The end of the last tuple, or the starting offset."""
        return self._checker.resume_offset

    async def source_version(self) -> str | None:
        """What the data was read from, if the server says, once it has answered."""
        found = [value for key, value in await self._call.initial_metadata() or () if key == _SOURCE_VERSION]
        if len(found) > 1:
            raise DataLossError(f"the server sent {len(found)} versions of the source")
        return found[0] if found else None

    def cancel(self) -> None:
        """Ends the call."""
        self._call.cancel()

    async def __aenter__(self) -> RemoteStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._call.cancel()


def read_allocated(channel: grpc.aio.Channel, snapshot: str, *, starting_offset: int = 0, max_results: int = 0,
                   secrets: Mapping[str, str] | None = None, require_proof: bool = False,
                   timeout: float | None = None, metadata: Sequence[tuple[str, str]] | None = None) -> RemoteStream:
    """What is allocated in a snapshot, as cbt.grpc.read_allocated()."""
    request, checker = _ask([snapshot], starting_offset, max_results, secrets, require_proof)
    return RemoteStream(channel.unary_stream(_ALLOCATED)(request, timeout=timeout, metadata=metadata), checker)


def read_delta(channel: grpc.aio.Channel, base: str, target: str, *, starting_offset: int = 0, max_results: int = 0,
               secrets: Mapping[str, str] | None = None, require_proof: bool = False, timeout: float | None = None,
               metadata: Sequence[tuple[str, str]] | None = None) -> RemoteStream:
    """What changed between two snapshots of a volume; otherwise the same."""
    request, checker = _ask([base, target], starting_offset, max_results, secrets, require_proof)
    return RemoteStream(channel.unary_stream(_DELTA)(request, timeout=timeout, metadata=metadata), checker)
