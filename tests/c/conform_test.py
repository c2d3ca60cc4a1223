"""The command's own checker judges servers made with libcbt.so.1: one where a gRPC library that is not
ours, grpcio, serves the bytes of streams, the library's own, and its relay in front of that. ctypes
calls the library as any language would."""

import argparse
import concurrent.futures
import ctypes
import pathlib
import random
import subprocess
import sys
import tempfile

import grpc

import library as lib

BLOCK = 4096
BLOCKS = 200_000
CODES = {code.value[0]: code for code in grpc.StatusCode}
OPEN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
                        ctypes.POINTER(ctypes.c_void_p))


class Geometry(ctypes.Structure):
    _fields_ = [("capacity", ctypes.c_uint64), ("granularity", ctypes.c_uint64)]


class Provider(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("user", ctypes.c_void_p), ("open", OPEN), ("release", ctypes.c_void_p)]


class ServiceOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("plugin_name", ctypes.c_char_p), ("vendor_version", ctypes.c_char_p)]


# The first members only: what a program has that was compiled before the others were added.
class ServerOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("listen", ctypes.c_char_p)]


class RelayOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("plugin", ctypes.c_char_p)]


class Message(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_uint64), ("tuples", ctypes.c_uint64),
                ("reported_bytes", ctypes.c_uint64), ("state", ctypes.c_int32), ("reserved", ctypes.c_int32)]


class Metadata(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("value", ctypes.c_char_p)]


class Plugin:
    def __init__(self, library, extents):
        self.library, self.extents = library, extents
        random.seed(11)
        base = bytes(random.getrandbits(8) & random.getrandbits(8) for _ in range(BLOCKS // 8))
        target = bytes(byte | random.getrandbits(8) & random.getrandbits(8) & random.getrandbits(8) for byte in base)
        self.snapshots = {b"monday": base, b"tuesday": target}
        self.callback = OPEN(self.open)
        provider = Provider(ctypes.sizeof(Provider), None, self.callback, None)
        options = ServiceOptions(ctypes.sizeof(ServiceOptions), b"from-c.example.com", b"1.0")
        self.service = library.make("service_new", ctypes.byref(provider), ctypes.byref(options))

    def open(self, _user, request, answer, error):
        c, library = self.library.c, self.library
        request = ctypes.c_void_p(request)
        base, target = c.cbt_request_base_borrowed(request, None), c.cbt_request_target_borrowed(request, None)
        missing = [name for name in (base, target) if name is not None and name not in self.snapshots]
        if missing:
            error[0] = c.cbt_error_new(5, b"no such snapshot", ctypes.c_uint64(16))
            return 5
        bits = [library.make("bytes_copy", self.snapshots[name], ctypes.c_uint64(BLOCKS // 8))
                for name in (base, target) if name is not None]
        # A capacity that is no multiple of the block.
        geometry = Geometry(BLOCKS * BLOCK - 512, BLOCK)
        if base is None:
            cursor = library.make("cursor_from_bitmap", bits[0], None, ctypes.byref(geometry))
        else:
            cursor = library.make("cursor_from_bitmaps", *bits, 0, None, ctypes.byref(geometry))
        for each in bits:
            c.cbt_bytes_free(each)
        answer = ctypes.c_void_p(answer)
        library.call("answer_set_cursor", answer, cursor)
        if not self.extents:
            library.call("answer_set_blocks", answer, ctypes.c_uint64(BLOCK))
        return 0

    def metadata(self, stream, which):
        entries, count = ctypes.POINTER(Metadata)(), ctypes.c_uint64()
        self.library.call("stream_metadata_borrowed", stream, which, ctypes.byref(entries), ctypes.byref(count))
        return [(entries[i].key.decode(), entries[i].value.decode()) for i in range(count.value)]

    def serve(self, method, request, context):
        library = self.library
        try:
            stream = library.make("stream_open", self.service, method, request, ctypes.c_uint64(len(request)), None)
            try:
                message, sent = Message(), 0
                while True:
                    library.call("stream_next", stream, ctypes.byref(message))
                    if message.state == 3:
                        break
                    if sent == 0:
                        context.send_initial_metadata(self.metadata(stream, 0))
                    sent += 1
                    yield ctypes.string_at(message.data, message.size)
                context.set_trailing_metadata(self.metadata(stream, 1))
            finally:
                library.c.cbt_stream_free(stream)
        except lib.Failed as failed:
            context.abort(CODES[failed.code], str(failed))

    def handlers(self):
        found, index = {}, 0
        while (name := self.library.c.cbt_service_method_borrowed(self.service, ctypes.c_uint64(index))) is not None:
            def stream(request, context, name=name):
                return self.serve(name, request, context)

            def unary(request, context, name=name):
                return list(self.serve(name, request, context))[0]

            streams = "SnapshotMetadata" in name.decode()
            found[name.decode()] = (grpc.unary_stream_rpc_method_handler(stream) if streams
                                    else grpc.unary_unary_rpc_method_handler(unary))
            index += 1
        return found


class Router(grpc.GenericRpcHandler):
    def __init__(self, handlers):
        self.handlers = handlers

    def service(self, handler_call_details):
        return self.handlers.get(handler_call_details.method)


def conform(command, address):
    done = subprocess.run([command, "conform", address, "--snapshot", "tuesday", "--base", "monday", "-v"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    print(done.stdout)
    return done.returncode


def grpcio(plugin, folder, command):
    address = f"unix://{folder}/csi.sock"
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
    server.add_generic_rpc_handlers((Router(plugin.handlers()),))
    server.add_insecure_port(address)
    server.start()
    failed = conform(command, address)
    server.stop(None).wait()
    return failed


def own(plugin, folder, command):
    library = plugin.library
    options = ServerOptions(ctypes.sizeof(ServerOptions), f"unix://{folder}/own.sock".encode())
    server = library.make("server_start", plugin.service, ctypes.byref(options))
    address = library.c.cbt_server_address_borrowed(server)
    failed = conform(command, address.decode())
    options = ServerOptions(ctypes.sizeof(ServerOptions), b"127.0.0.1:0")
    relay_options = RelayOptions(ctypes.sizeof(RelayOptions), address)
    relay = library.make("relay_start", ctypes.byref(relay_options), ctypes.byref(options))
    failed |= conform(command, library.c.cbt_server_address_borrowed(relay).decode())
    library.c.cbt_server_free(relay)
    library.c.cbt_server_free(server)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--cbt", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    library = lib.Library(arguments.library, "request_base_borrowed", "request_target_borrowed", "service_method_borrowed")
    failed = 0
    for extents in (True, False):
        plugin = Plugin(library, extents)
        with tempfile.TemporaryDirectory() as folder:
            for serve in (grpcio, own):
                failed |= serve(plugin, folder, arguments.cbt)
        library.c.cbt_service_free(plugin.service)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
