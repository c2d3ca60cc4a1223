"""A minimal gRPC client: a socket, and HTTP/2 frames. It does what real clients never do: it stops
reading, vanishes in the middle of a stream, or leaves silently.
"""

import ctypes
import socket
import struct
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
CANCEL = 8


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name, value):
    """A header field without indexing or Huffman coding."""
    def text(data):
        size = len(data)
        if size < 127:
            return bytes([size]) + data
        size, out = size - 127, bytearray([127])
        while size > 127:
            out.append(size & 127 | 128)
            size >>= 7
        return bytes(out) + bytes([size]) + data
    return b"\0" + text(name) + text(value)


class _NameValue(ctypes.Structure):
    _fields_ = [("name", ctypes.POINTER(ctypes.c_uint8)), ("value", ctypes.POINTER(ctypes.c_uint8)),
                ("name_bytes", ctypes.c_size_t), ("value_bytes", ctypes.c_size_t),
                ("flags", ctypes.c_uint8)]


class Inflater:
    """Decodes a connection's header blocks, in order, with nghttp2."""

    FINAL, EMIT = 1, 2  # nghttp2_hd_inflate_flag

    def __init__(self):
        self.library = ctypes.CDLL("libnghttp2.so.14")
        self.library.nghttp2_hd_inflate_hd2.restype = ctypes.c_ssize_t
        self.library.nghttp2_hd_inflate_hd2.argtypes = [
            ctypes.c_void_p, ctypes.POINTER(_NameValue), ctypes.POINTER(ctypes.c_int),
            ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
        self.state = ctypes.c_void_p()
        if self.library.nghttp2_hd_inflate_new(ctypes.byref(self.state)) != 0:
            raise MemoryError

    def __del__(self):
        self.library.nghttp2_hd_inflate_del(self.state)

    def fields(self, block):
        """[(name, value)]; ValueError if the block is damaged."""
        found = []
        while True:
            pair, flags = _NameValue(), ctypes.c_int(0)
            used = self.library.nghttp2_hd_inflate_hd2(
                self.state, ctypes.byref(pair), ctypes.byref(flags), block, len(block), 1)
            if used < 0:
                raise ValueError(f"damaged header block: {used}")
            block = block[used:]
            if flags.value & self.EMIT:
                found.append((ctypes.string_at(pair.name, pair.name_bytes),
                              ctypes.string_at(pair.value, pair.value_bytes)))
            if flags.value & self.FINAL:
                self.library.nghttp2_hd_inflate_end_headers(self.state)
                return found


def connect(address, timeout):
    """Connects a socket to `unix:///path` or `host:port`."""
    if address.startswith("unix://"):
        made = socket.socket(socket.AF_UNIX)
        place = address[len("unix://"):]
    else:
        made = socket.socket()
        host, port = address.rsplit(":", 1)
        place = (host, int(port))
    made.settimeout(timeout)
    by = time.monotonic() + timeout
    while True:
        try:
            made.connect(place)
            return made
        except BlockingIOError:
            # As many clients as the system allows wait for a Unix socket.
            if time.monotonic() > by:
                made.close()
                raise
            time.sleep(0.01)
        except OSError:
            made.close()
            raise


class Connection:
    """A connection to `unix:///path` or `host:port`; with an ssl `context`, over TLS to "localhost"."""

    def __init__(self, address, timeout=30, window=65535, context=None):
        self.socket = connect(address, timeout)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.buffer = b""
        self.next_stream = 1
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window)))

    def ask(self, path, request):
        """Begins a stream and returns its number."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        head = b"".join(literal(*field) for field in (
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()),
            (b":authority", b"localhost"), (b"te", b"trailers"),
            (b"content-type", b"application/grpc")))
        message = struct.pack(">BI", 0, len(request)) + request
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, head) +
                            frame(DATA, END_STREAM, stream, message))
        return stream

    def receive(self):
        """The next frame: (kind, flags, stream, payload); None at the end of the connection."""
        while len(self.buffer) < 9 or len(self.buffer) < 9 + self._size():
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self.buffer += data
        size = self._size()
        kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
        payload, self.buffer = self.buffer[9:9 + size], self.buffer[9 + size:]
        if kind == SETTINGS and not flags & ACK:
            self.socket.sendall(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        return kind, flags, stream, payload

    def _size(self):
        return int.from_bytes(self.buffer[:3], "big")

    def more(self, stream, count):
        """Lets the server send that many more bytes."""
        update = struct.pack(">I", count)
        self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, update) +
                            frame(WINDOW_UPDATE, 0, stream, update))

    def reset(self, stream):
        self.socket.sendall(frame(RST_STREAM, 0, stream, struct.pack(">I", CANCEL)))

    def close(self, linger=True):
        """Closes the socket; without `linger` a TCP connection is reset."""
        if not linger and self.socket.family != socket.AF_UNIX:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def messages_in(data):
    """The complete messages at the start of a stream's bytes."""
    at = 0
    while len(data) - at >= 5:
        size = int.from_bytes(data[at + 1:at + 5], "big")
        if len(data) - at - 5 < size:
            return
        yield bytes(data[at + 5:at + 5 + size])
        at += 5 + size
