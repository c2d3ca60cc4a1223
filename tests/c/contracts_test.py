"""The client of libcbt.so.1 reads the command's server in each of the four contracts, and its own
server with TLS; all answers are those of the command's client. ctypes calls the library."""

import argparse
import ctypes
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import library as lib

CAPACITY = 8 << 20
TOKEN = "0123456789abcdef0123456789abcdef"
ABSENT, HOLDS = 0, 1
# Those of cbt/c/server.h.
CONTRACTS = {"csi": 0, "kubernetes": 1, "session": 2, "paged": 3}
# In the order of cbt_client_options.
TEXTS = ("address", "snapshot", "base", "token", "name_space", "volume", "ca", "certificate", "key")


class ClientOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("address", ctypes.c_char_p), ("snapshot", ctypes.c_char_p),
                ("base", ctypes.c_char_p), ("contract", ctypes.c_int32), ("require_proof", ctypes.c_int32),
                ("token", ctypes.c_char_p), ("name_space", ctypes.c_char_p), ("volume", ctypes.c_char_p),
                ("secrets", ctypes.c_void_p), ("secret_count", ctypes.c_uint64), ("starting_offset", ctypes.c_uint64),
                ("source_version", ctypes.c_char_p), ("max_results", ctypes.c_uint32), ("no_message", ctypes.c_int32),
                ("capacity", ctypes.c_uint64), ("wire_tuples", ctypes.c_int32), ("tls", ctypes.c_int32),
                ("ca", ctypes.c_char_p), ("certificate", ctypes.c_char_p), ("key", ctypes.c_char_p),
                ("timeout_ms", ctypes.c_uint64), ("stall_ms", ctypes.c_uint64), ("retry_ms", ctypes.c_uint64)]


class RelayOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("plugin", ctypes.c_char_p)]


class ServerOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint64), ("listen", ctypes.c_char_p), ("tls_certificate_file", ctypes.c_char_p),
                ("tls_key_file", ctypes.c_char_p), ("tls_client_ca_file", ctypes.c_char_p)]


class Batch(ctypes.Structure):
    _fields_ = [("offsets", ctypes.POINTER(ctypes.c_uint64)), ("lengths", ctypes.POINTER(ctypes.c_uint64)),
                ("count", ctypes.c_uint64), ("covered", ctypes.c_uint64), ("complete", ctypes.c_int32),
                ("reserved", ctypes.c_int32)]


class Library(lib.Library):
    def read(self, **members):
        """The extents of a request, and what is proven about them."""
        texts = {name: text.encode() for name, text in members.items() if name in TEXTS}
        options = ClientOptions(struct_size=ctypes.sizeof(ClientOptions), **{"retry_ms": 5000, **members, **texts})
        client = self.make("client_new", ctypes.byref(options))
        try:
            cursor = self.make("client_open", client)
            try:
                found, batch = [], Batch()
                while not batch.complete:
                    self.call("cursor_next", cursor, ctypes.byref(batch))
                    found += zip(batch.offsets[:batch.count], batch.lengths[:batch.count])
                proof = ctypes.c_int32()
                self.call("client_proof", client, ctypes.byref(proof))
                return found, proof.value
            finally:
                self.c.cbt_cursor_free(cursor)
        finally:
            self.c.cbt_client_free(client)


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def make_images(folder):
    random.seed(3)
    images = folder / "images/prod"
    images.mkdir(parents=True)
    monday = bytearray(CAPACITY)
    tuesday = bytearray(monday)
    for _ in range(200):
        at = random.randrange(CAPACITY // 4096) * 4096
        tuesday[at:at + 4096] = random.randbytes(4096)
    (images / "monday.img").write_bytes(monday)
    (images / "tuesday.img").write_bytes(tuesday)
    (folder / "tokens").write_text(f"{TOKEN} backup prod\n")
    (folder / "sessions").write_text(f"{TOKEN} prod monday,tuesday -\n")


def make_certificate(folder):
    run = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
           "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
           "-keyout", folder / "tls.key", "-out", folder / "tls.crt"]
    subprocess.run(run, check=True, stderr=subprocess.DEVNULL)


def listed(command, address):
    """What the command's client reads."""
    done = subprocess.run([command, "list", address, "--snapshot", "prod/tuesday", "--base", "prod/monday", "--format", "csv",
                           "--quiet"], check=True, text=True, stdout=subprocess.PIPE)
    return [tuple(int(number) for number in line.split(",")) for line in done.stdout.splitlines() if line[:1].isdigit()]


def all_contracts(library, command, address):
    expected = listed(command, address)
    expect(len(expected) > 100, f"the images differ: {len(expected)}")
    for name, contract in CONTRACTS.items():
        names = {"base": "prod/monday", "snapshot": "prod/tuesday"}
        if name == "kubernetes":  # the handle of the base, and the name of the target
            names.update(snapshot="tuesday", token=TOKEN, name_space="prod")
        elif name == "session":
            names.update(base="monday", snapshot="tuesday", token=TOKEN, volume="prod")
        found, proof = library.read(address=address, contract=contract, **names)
        expect(found == expected, f"{name}: {len(found)} extents, expected {len(expected)}")
        # Pages have no proof.
        expect(proof == (ABSENT if name == "paged" else HOLDS), f"{name}: the proof is {proof}")
        print(f"{name}: {len(found)} extents, proof {proof}")


def with_tls(library, folder, plugin, expected):
    options = ServerOptions(ctypes.sizeof(ServerOptions), b"localhost:0", str(folder / "tls.crt").encode(),
                            str(folder / "tls.key").encode(), None)
    relay = RelayOptions(ctypes.sizeof(RelayOptions), plugin.encode())
    server = library.make("relay_start", ctypes.byref(relay), ctypes.byref(options))
    address = library.c.cbt_server_address_borrowed(server).decode()
    request = {"address": address, "base": "prod/monday", "snapshot": "prod/tuesday", "tls": 1}
    found, proof = library.read(ca=(folder / "tls.crt").read_text(), **request)
    expect((found, proof) == (expected, HOLDS), f"with TLS: {len(found)} extents, proof {proof}")
    for what, refused in (("an unknown authority", request), ("no TLS", {**request, "tls": 0})):
        try:
            library.read(**{**refused, "retry_ms": (1 << 64) - 1})
            sys.exit(f"FAILED: {what} is refused")
        except lib.Failed as failed:
            expect(failed.code == 14, f"{what}: {failed.code} {failed}")
    library.c.cbt_server_free(server)
    print("TLS: the same, and refused without its authority")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--cbt", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    library = Library(arguments.library)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        make_images(folder)
        make_certificate(folder)
        reader, writer = os.pipe()
        serve = subprocess.Popen([arguments.cbt, "serve", "--root", folder / "images", "--listen", f"unix://{folder}/cbt.sock",
                                  "--api", "csi,kubernetes,session,paged", "--tokens", folder / "tokens",
                                  "--sessions", folder / "sessions", "--ready-fd", str(writer), "--quiet"], pass_fds=[writer])
        os.close(writer)
        try:
            with os.fdopen(reader) as ready:
                address = ready.read().strip()
            expect(address != "", "the server is ready")
            all_contracts(library, arguments.cbt, address)
            with_tls(library, folder, address, listed(arguments.cbt, address))
        finally:
            serve.terminate()
            serve.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
