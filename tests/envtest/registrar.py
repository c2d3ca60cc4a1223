"""Registers a CSI driver with a kubelet, as node-driver-registrar does. Not a test."""

import os
import threading
from concurrent import futures

import grpc


def text(number, value):
    """A field of type string; all are shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(value)]) + value.encode()


class Registrar:
    """Answers the kubelet's watcher of plugins on the socket `path`."""

    def __init__(self, driver, csi_socket, path):
        self.registered = threading.Event()
        self.info = text(1, "CSIPlugin") + text(2, driver) + text(3, csi_socket) + text(4, "1.0.0")

        def unary(answer):
            return grpc.unary_unary_rpc_method_handler(answer, bytes, bytes)

        handler = grpc.method_handlers_generic_handler("pluginregistration.Registration", {
            "GetInfo": unary(lambda request, context: self.info),
            "NotifyRegistrationStatus": unary(self.notified)})
        if os.path.exists(path):
            os.unlink(path)
        self.server = grpc.server(futures.ThreadPoolExecutor(2), handlers=(handler,))
        self.server.add_insecure_port("unix:" + path)
        self.server.start()

    def notified(self, request, _context):
        if request[:2] == b"\x08\x01":  # plugin_registered: true
            self.registered.set()
        return b""

    def stop(self):
        self.server.stop(None).wait()
