"""Streams of which each takes a message a second, in a process of their own: what this costs beside
the server must not slow down whoever measures others.

slow_readers.py FOLDER_OF_CSI_PB2 ADDRESS SNAPSHOT STREAMS MAX_RESULTS

Says the mean length of the first messages when each stream has one; reads until a line comes on
standard input, says how many messages came in a second, and goes at its end.
"""

import os
import select
import statistics
import subprocess
import sys
import threading
import time

STREAMS_A_CONNECTION = 100
PATIENCE = 60  # seconds for any answer of the process
ALLOCATED = "/csi.v1.SnapshotMetadata/GetMetadataAllocated"


class SlowReaders:
    """The process, seen from the one that measures."""

    def __init__(self, messages, server, snapshot, streams, max_results):
        self.process = subprocess.Popen(
            [sys.executable, "-B", __file__, messages, server.address, snapshot, str(streams),
             str(max_results)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.size = float(self.said())

    def said(self):
        """The next line, which is all that there is to read."""
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.process.kill()
            raise RuntimeError("a slow reader waits for a message that does not come")
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the slow readers failed")
        return line

    def stop(self):
        """Messages that came in a second, for all streams together."""
        self.process.stdin.write("stop\n")
        self.process.stdin.flush()
        return float(self.said())

    def close(self):
        self.process.stdin.close()
        if self.process.wait(PATIENCE) != 0:
            raise RuntimeError("the slow readers failed")
        self.process.stdout.close()


def main(messages, address, snapshot, count, max_results):
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    sys.path.insert(0, messages)
    import csi_pb2  # pylint: disable=import-outside-toplevel
    import grpc  # pylint: disable=import-outside-toplevel

    request = csi_pb2.GetMetadataAllocatedRequest(
        snapshot_id=snapshot, max_results=int(max_results)).SerializeToString()
    channels, streams = [], []
    for number in range(int(count)):
        if number % STREAMS_A_CONNECTION == 0:
            channels.append(grpc.insecure_channel(address, options=[
                ("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0),
                ("grpc.enable_http_proxy", 0)]))
        streams.append(channels[-1].unary_stream(
            ALLOCATED, request_serializer=None, response_deserializer=None)(request))
    print(statistics.mean(len(next(stream)) for stream in streams), flush=True)

    stop = threading.Event()

    def listen():
        sys.stdin.readline()
        stop.set()

    listener = threading.Thread(target=listen)
    listener.start()
    begin, taken = time.monotonic(), 0
    while not stop.is_set():
        for stream in streams:
            next(stream)
        taken += 1
        stop.wait(max(0, begin + taken - time.monotonic()))
    listener.join()
    print(taken * len(streams) / max(taken, time.monotonic() - begin), flush=True)
    sys.stdin.read()
    for stream in streams:
        stream.cancel()
    for channel in channels:
        channel.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
