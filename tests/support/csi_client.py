"""Calls a CSI driver with grpcio and protoc's messages. Not a test."""

import os
import subprocess
import sys
import time

import grpc

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "programs",
                      "driver")


def generate(folder):
    """Makes the messages' module in a folder, and returns it."""
    subprocess.run(["protoc", f"--proto_path={SOURCE}", f"--python_out={folder}", "csi.proto"],
                   check=True)
    sys.path.insert(0, folder)
    import csi_pb2  # pylint: disable=import-outside-toplevel,import-error
    return csi_pb2


class Client:
    """Calls by name: client.CreateVolume(name=...) with the fields of CreateVolumeRequest."""

    SERVICES = {"GetPluginInfo": "Identity", "GetPluginCapabilities": "Identity",
                "Probe": "Identity"}

    def __init__(self, messages, address):
        self.messages = messages
        # Repeats calls that meet another one, as Kubernetes' components do.
        self.patient = False
        self.channel = grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1),
                              ("grpc.enable_http_proxy", 0)])

    def close(self):
        self.channel.close()

    def __getattr__(self, name):
        service = self.SERVICES.get(name, "Node" if name.startswith("Node") else "Controller")
        if "Group" in name:
            service = "GroupController"
        call = self.channel.unary_unary(
            f"/csi.v1.{service}/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(self.messages, name + "Response").FromString)
        request = getattr(self.messages, name + "Request")

        def ask(**fields):
            late = time.monotonic() + 60
            while True:
                try:
                    return call(request(**fields), timeout=120)
                except grpc.RpcError as error:
                    pending = error.code() == grpc.StatusCode.ABORTED
                    if not (self.patient and pending) or time.monotonic() > late:
                        raise
                time.sleep(0.05)

        return ask

    def tuples(self, method, **fields):
        """The tuples of a stream, and the capacity that it reports."""
        call = self.channel.unary_stream(
            f"/csi.v1.SnapshotMetadata/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(self.messages, method + "Response").FromString)
        request = getattr(self.messages, method + "Request")
        found, capacity = [], None
        for message in call(request(**fields), timeout=120):
            capacity = message.volume_capacity_bytes
            found += [(one.byte_offset, one.size_bytes) for one in message.block_metadata]
        return found, capacity

    def delta(self, base, target):
        return self.tuples("GetMetadataDelta", base_snapshot_id=base, target_snapshot_id=target)

    def allocated(self, snapshot):
        return self.tuples("GetMetadataAllocated", snapshot_id=snapshot)
