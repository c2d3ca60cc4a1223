"""Clients of every kind: patient ones, and others that stall, are killed, cancel, time out or
vanish. Each keeps what it received and resumes until it has everything.
"""

import json
import os
import signal
import subprocess
import threading
import time

import csi_pb2
import grpc
import http2

Code = grpc.StatusCode
DELTA = "/csi.v1.SnapshotMetadata/GetMetadataDelta"
ALLOCATED = "/csi.v1.SnapshotMetadata/GetMetadataAllocated"
KINDS = {"blocks": csi_pb2.FIXED_LENGTH, "extents": csi_pb2.VARIABLE_LENGTH}
# Statuses besides OK for streams of misbehaving clients.
OWN_FAULT = {Code.CANCELLED, Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED, Code.ABORTED}
# Statuses for any stream whose server was stopped. gRPC itself cancels calls that reached a server
# during shutdown and were not handed to the service yet.
SERVER_GONE = {Code.UNAVAILABLE, Code.CANCELLED}
LONGEST = 300  # seconds that any stream may take


class Wrong(Exception):
    """A violation."""


class Client:
    """A question to a server, repeated until it is answered."""

    def __init__(self, soak, rng, channels, server, api, question, start):
        self.soak, self.rng, self.channels = soak, rng, channels
        self.server, self.api, self.start = server, api, start
        self.volume, self.base, self.target, self.answer = question
        self.held = []

    def __repr__(self):
        return (f"{self.api} {self.volume} {self.base}..{self.target} from {self.start} at "
                f"{self.server.name}, holds {len(self.held)}")

    def resume_point(self):
        return min(sum(self.held[-1]), self.answer.capacity) if self.held else self.start

    def request(self, max_results):
        arguments = {"starting_offset": self.resume_point(), "max_results": max_results}
        if self.base is None:
            return ALLOCATED, csi_pb2.GetMetadataAllocatedRequest(
                snapshot_id=f"{self.volume}/{self.target}",
                **arguments), csi_pb2.GetMetadataAllocatedResponse
        return DELTA, csi_pb2.GetMetadataDeltaRequest(
            base_snapshot_id=f"{self.volume}/{self.base}",
            target_snapshot_id=f"{self.volume}/{self.target}",
            **arguments), csi_pb2.GetMetadataDeltaResponse

    def take(self, message, max_results):
        """Adds a message of the stream."""
        if message.volume_capacity_bytes != self.answer.capacity:
            raise Wrong(f"{self}: capacity {message.volume_capacity_bytes}")
        if message.block_metadata_type != KINDS[self.server.shape[0]]:
            raise Wrong(f"{self}: type {message.block_metadata_type}")
        if max_results and len(message.block_metadata) > max_results:
            raise Wrong(f"{self}: {len(message.block_metadata)} tuples of {max_results}")
        self.held += [(t.byte_offset, t.size_bytes) for t in message.block_metadata]

    def check(self, complete):
        """What is held must be the whole answer or a prefix of it."""
        if not self.answer.is_since(self.server.shape, self.start, self.held,
                                    pages=self.api == "paged", whole=complete):
            want = self.answer.since(self.server.shape, self.start)
            at = next((i for i, (a, b) in enumerate(zip(self.held, want)) if a != b),
                      min(len(self.held), len(want)))
            raise Wrong(f"{self}: not {'all' if complete else 'the beginning'} of {len(want)}, "
                        f"differs at {at}: {self.held[at:at + 3]}, wanted {want[at:at + 3]}")

    # Each of these runs one stream. Returns None if it ended with OK, otherwise the reason.

    def by_grpcio(self, how="whole"):
        max_results = self.max_results()
        method, request, kind = self.request(max_results)
        channel = self.channels.of(self.server)
        timeout = self.rng.choice([0.001, 0.02, 0.1, 0.4]) if how == "deadline" else LONGEST
        stream = channel.unary_stream(
            method, request_serializer=type(request).SerializeToString,
            response_deserializer=kind.FromString)(request, timeout=timeout)
        misbehaves_after = self.rng.randrange(6)
        count = 0
        waited_from = began = time.monotonic()
        try:
            while True:
                if count == misbehaves_after and how in ("pause", "stall"):
                    self.soak.wait(self.pause() if how == "pause" else self.stall())
                elif count == misbehaves_after and how == "cancel":
                    stream.cancel()
                elif how == "slow" and count < 40:
                    self.soak.wait(0.02)
                waited_from = time.monotonic()
                message = next(stream)
                self.take(message, max_results)
                count += 1
        except StopIteration:
            if stream.code() != Code.OK:
                raise Wrong(f"{self}: an end with {stream.code()}") from None
            return None
        except grpc.RpcError as error:
            code = error.code()
            now = time.monotonic()
            # A window holds thousands of small messages, and the server only learns that they were
            # taken once half of it is: on a busy machine that may be later than the stall time,
            # although the client never stopped reading.
            late = now - began > self.soak.stall_time and now - waited_from < 1
            self.soak.count("late", late and code == Code.CANCELLED)
            self.excused(code, late or how in ("stall", "cancel", "deadline"),
                         f"{error.details()}; {how}, max_results {max_results}, message {count}, "
                         f"after {now - began:.1f} s, of these the last {now - waited_from:.1f} "
                         "waiting for it")
            if code == Code.UNAVAILABLE:
                self.channels.drop(self.server)
            return code.name
        finally:
            stream.cancel()

    def excused(self, code, misbehaved, text):
        """Checks that a stream may have ended with that."""
        allowed = OWN_FAULT if misbehaved else set()
        if self.server.mortal:
            allowed = allowed | SERVER_GONE
        if code not in allowed:
            raise Wrong(f"{self}: {code.name}: {text}")

    def by_list(self, how="whole"):
        options = ["--api", self.api, "--starting-offset", self.resume_point(), "--max-results",
                   self.max_results(), "--format", "ndjson", *self.soak.names(self)]
        if self.api != "paged" and self.rng.random() < 0.5:
            options.append("--prove")
        process = subprocess.Popen(
            [self.soak.cbt, "list", self.server.address, *map(str, options)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        errors = []
        reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))
        reader.start()
        text = bytearray()
        limit = self.rng.choice([0, 1 << 10, 1 << 16, 1 << 20])
        try:
            if how == "whole":
                text += process.stdout.read()
            else:
                while len(text) < limit:
                    data = os.read(process.stdout.fileno(), min(1 << 16, limit - len(text)))
                    if not data:
                        break
                    text += data
                if how == "kill":
                    self.soak.wait(self.rng.random() * 0.2)
                    process.send_signal(signal.SIGKILL)
                    self.soak.count("kills")
                else:
                    self.soak.wait(self.pause() if how == "pause" else self.stall())
                text += process.stdout.read()
            process.wait(LONGEST)
        finally:
            process.kill()
            process.wait()
            reader.join()
            process.stdout.close()
            process.stderr.close()
        return self.parsed(text.decode(), process.returncode, errors[0], how)

    def parsed(self, text, status, errors, how):
        """Parses the output of a `cbtctl list` that has ended."""
        lines = text.split("\n")
        lines.pop()  # a line without a newline is incomplete
        complete = False
        for number, line in enumerate(lines):
            entry = json.loads(line)
            if number == 0 and "volume_capacity_bytes" in entry:
                if entry["volume_capacity_bytes"] != self.answer.capacity:
                    raise Wrong(f"{self}: capacity {line}")
            elif "error" in entry:
                if status != 3 or number != len(lines) - 1:
                    raise Wrong(f"{self}: {line} and exit status {status}")
            elif "complete" in entry:
                if number != len(lines) - 1:
                    raise Wrong(f"{self}: lines after {line}")
                complete = True
            else:
                self.held.append((entry["byte_offset"], entry["size_bytes"]))
        # The process may be killed after its last complete line, too.
        if complete != (status == 0) and how != "kill":
            raise Wrong(f"{self}: end marker {complete} and exit status {status}")
        if status == 0:
            return None
        if status == -signal.SIGKILL and how == "kill":
            return "KILLED"
        if status == 3 and (self.server.mortal or how == "stall"):
            return "LIST_FAILED"
        raise Wrong(f"{self}: cbtctl list ended with {status}: {errors[-300:]}")

    def by_socket(self, how):
        """Receives some frames by hand, then misbehaves."""
        method, request, kind = self.request(self.max_results())
        try:
            connection = http2.Connection(self.server.address, LONGEST)
        except OSError as error:
            if not self.server.mortal:
                raise Wrong(f"{self}: {error}") from None
            return "REFUSED"
        data = bytearray()
        try:
            stream = connection.ask(method, request.SerializeToString())
            wanted = self.rng.choice([1, 1000, 30_000])
            if how == "vanish" and self.rng.random() < 0.2:
                wanted = 0
            while len(data) < wanted:
                got = connection.receive()
                if got is None or (got[0] == http2.HEADERS and got[1] & http2.END_STREAM):
                    break
                if got[0] == http2.DATA:
                    data += got[3]
                elif got[0] == http2.HEADERS and data:
                    break
            if how == "reset":
                connection.reset(stream)
            elif how == "silent":
                # Pings cannot be answered by a client that closes its window.
                self.soak.wait(self.stall())
        except OSError:
            if not self.server.mortal and how != "silent":
                raise
        finally:
            connection.close(linger=self.rng.random() < 0.5)
        for message in http2.messages_in(data):
            self.take(kind.FromString(message), 0)
        self.soak.count("kills")
        return "VANISHED"

    def max_results(self):
        if self.api == "paged":
            # Every page is a separate stream.
            return self.rng.choice([0, 0, 500, 5000])
        count = len(self.answer.whole(self.server.shape))
        if count > 4000:
            return self.rng.choice([0, 0, 0, 500, 1000, 65536])
        return self.rng.choice([0, 7, 100, 1 if count < 1000 else 20])

    def pause(self):
        return self.rng.uniform(0, self.soak.stall_time / 2)

    def stall(self):
        return self.soak.stall_time + self.rng.uniform(0.2, 2)

    def run(self, first):
        """Asks with `first`, a pair (way, manner), and repeats until everything is there."""
        way, how = first
        end = time.monotonic() + LONGEST
        interrupted = 0
        while True:
            self.soak.count("streams")
            why = getattr(self, f"by_{way}")(how)
            self.soak.ended(self.server.name, way, how, why)
            self.check(complete=why is None)
            if why is None:
                break
            interrupted += 1
            self.soak.count("interrupted")
            if self.soak.stopping.is_set() and time.monotonic() > end - LONGEST + 60:
                raise Wrong(f"{self}: did not come to its end")
            if time.monotonic() > end:
                raise Wrong(f"{self}: nothing any more after {interrupted} streams, last {why}")
            if why in ("UNAVAILABLE", "REFUSED", "LIST_FAILED"):
                time.sleep(0.1)
            # From here on it behaves.
            way = "list" if self.api != "csi" else self.rng.choice(["grpcio", "grpcio", "list"])
            how = "whole"
        self.soak.count("ok")
        if interrupted:
            self.soak.count("resumed")


class Channels:
    """A worker's connections, reused between its questions."""

    def __init__(self):
        self.open = {}

    def of(self, server):
        if server.name not in self.open:
            self.open[server.name] = grpc.insecure_channel(server.address, options=[
                ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0),
                # Fixed windows, so that the server notices a slow reader.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.max_receive_message_length", 4 << 20)])
        return self.open[server.name]

    def drop(self, server):
        if server.name in self.open:
            self.open.pop(server.name).close()

    def close(self):
        for channel in self.open.values():
            channel.close()
        self.open.clear()
