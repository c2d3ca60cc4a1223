"""A client of NBD, one request at a time. Not a test."""

import os
import socket
import struct
import threading

FUA = 1
READ, WRITE, DISCONNECT, FLUSH, TRIM, ZERO = 0, 1, 2, 3, 4, 6


class NbdClient:
    """Requests raise OSError with the server's error number, or ConnectionError."""

    def __init__(self, path, timeout=60):
        self.lock = threading.Lock()
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(path)
            magic, options, flags = struct.unpack(">8s8sH", self.receive(18))
            if (magic, options) != (b"NBDMAGIC", b"IHAVEOPT") or not flags & 2:
                raise ConnectionError("not an NBD server of the new style")
            # NBD_OPT_EXPORT_NAME, without zeros after the answer.
            self.socket.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0))
            self.size, self.flags = struct.unpack(">QH", self.receive(10))
        except BaseException:
            self.socket.close()
            raise

    def receive(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError("the server has closed the connection")
            data += piece
        return data

    def ask(self, command, offset=0, length=0, data=b"", flags=0):
        with self.lock:
            self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, flags, command, 7, offset,
                                            length) + data)
            magic, error, cookie = struct.unpack(">IIQ", self.receive(16))
            if (magic, cookie) != (0x67446698, 7):
                raise ConnectionError("not the answer to the request")
            if error != 0:
                raise OSError(error, os.strerror(error))
            return self.receive(length) if command == READ else b""

    def read(self, offset, length):
        return self.ask(READ, offset, length)

    def write(self, offset, data, flags=0):
        self.ask(WRITE, offset, len(data), data, flags)

    def flush(self):
        self.ask(FLUSH)

    def trim(self, offset, length):
        self.ask(TRIM, offset, length)

    def zero(self, offset, length):
        self.ask(ZERO, offset, length)

    def close(self):
        try:
            self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, DISCONNECT, 0, 0, 0))
        except OSError:
            pass
        self.socket.close()
