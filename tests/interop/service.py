"""Runs `cbtctl serve` and calls it with grpcio and protoc's messages; no code of the project."""

import os
import signal
import subprocess

import csi_pb2
import grpc

CBT = None  # path of the command, from the command line


class Server:
    """A running `cbtctl serve`."""

    def __init__(self, root, listen, *options):
        ready, ready_in_child = os.pipe()
        self.process = subprocess.Popen(
            [CBT, "serve", "--root", root, "--listen", listen,
             "--ready-fd", str(ready_in_child), *map(str, options)],
            pass_fds=[ready_in_child], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        os.close(ready_in_child)
        with os.fdopen(ready) as pipe:
            self.address = pipe.readline().strip()
        if not self.address:
            raise RuntimeError(self.process.communicate()[1].decode())

    def stop(self, how=signal.SIGTERM):
        """Ends the server and returns its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.communicate(timeout=30)
        return self.process.returncode


class Client:
    """Methods by name with explicit serialisers, as a generated stub has them."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0),
                              # Fixed windows, so that the server notices a slow reader.
                              ("grpc.http2.bdp_probe", 0)])

    def close(self):
        self.channel.close()

    def unary(self, method, request, response_type):
        call = self.channel.unary_unary(
            method, request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response_type.FromString)
        return call(request, timeout=30)

    def raw(self, method, request, timeout=60):
        """The messages of a stream as bytes, for a request as bytes."""
        call = self.channel.unary_stream(
            method, request_serializer=lambda message: message,
            response_deserializer=lambda message: message)
        return call(request, timeout=timeout)

    def allocated(self, snapshot, offset=0, max_results=0, secrets=None, timeout=60):
        call = self.channel.unary_stream(
            "/csi.v1.SnapshotMetadata/GetMetadataAllocated",
            request_serializer=csi_pb2.GetMetadataAllocatedRequest.SerializeToString,
            response_deserializer=csi_pb2.GetMetadataAllocatedResponse.FromString)
        return call(
            csi_pb2.GetMetadataAllocatedRequest(
                snapshot_id=snapshot, starting_offset=offset, max_results=max_results,
                secrets=secrets or {}),
            timeout=timeout)

    def delta(self, base, target, offset=0, max_results=0, secrets=None, timeout=60):
        call = self.channel.unary_stream(
            "/csi.v1.SnapshotMetadata/GetMetadataDelta",
            request_serializer=csi_pb2.GetMetadataDeltaRequest.SerializeToString,
            response_deserializer=csi_pb2.GetMetadataDeltaResponse.FromString)
        return call(
            csi_pb2.GetMetadataDeltaRequest(
                base_snapshot_id=base, target_snapshot_id=target, starting_offset=offset,
                max_results=max_results, secrets=secrets or {}),
            timeout=timeout)


def tuples_of(messages):
    return [(t.byte_offset, t.size_bytes) for m in messages for t in m.block_metadata]


def changed_blocks(base, target, block):
    """Offsets of the blocks of `target` in which a byte differs, found naively."""
    base = base + bytes(max(0, len(target) - len(base)))
    return [at for at in range(0, len(target), block)
            if base[at:at + block][:len(target) - at] != target[at:at + block]]


def extents_of(blocks, block, capacity):
    """Those blocks as maximal extents."""
    found = []
    for at in blocks:
        size = min(block, capacity - at)
        if found and found[-1][0] + found[-1][1] == at:
            found[-1] = (found[-1][0], found[-1][1] + size)
        else:
            found.append((at, size))
    return found
