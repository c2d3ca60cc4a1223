# A storage plugin in Python: answers csi.v1.SnapshotMetadata on a server of grpcio.
#
#     python plugin.py unix:///tmp/csi.sock
import concurrent.futures
import sys

import grpc

import cbt
import cbt.grpc

# [storage]
# What the storage knows: a bit for each block of 4 KiB of a volume of 64 KiB, set where the block
# was written since the volume was made, at each of two snapshots.
CAPACITY, BLOCK = 65536, 4096
SNAPSHOTS = {"monday": bytes([0x0F, 0x00]), "tuesday": bytes([0x3F, 0x80])}


def find(snapshot: str) -> bytes:
    if snapshot not in SNAPSHOTS:
        raise cbt.NotFoundError(f"no such snapshot: {snapshot}")
    return SNAPSHOTS[snapshot]


# [/storage]
# [provider]
class Provider:
    def allocated(self, target: str, request: cbt.Request) -> cbt.Cursor:
        return cbt.Cursor.from_bitmap(find(target), CAPACITY, BLOCK)

    def delta(self, base: str, target: str, request: cbt.Request) -> cbt.Cursor:
        return cbt.Cursor.from_bitmaps(find(base), find(target), "xor", CAPACITY, BLOCK)


# [/provider]
def main(address: str) -> None:
    # [serve]
    service = cbt.Service(Provider(), plugin_name="block.example.com")
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
    cbt.grpc.add_service(server, service)
    server.add_insecure_port(address)
    server.start()
    # [/serve]
    print(f"serving on {address}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: plugin.py ADDRESS")
    main(sys.argv[1])
