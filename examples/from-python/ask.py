# Prints what changed between two snapshots.
#
#     python ask.py unix:///tmp/csi.sock monday tuesday
import sys

import grpc

import cbt
import cbt.grpc


def main(address: str, base: str, target: str) -> None:
    # [ask]
    with grpc.insecure_channel(address) as channel:
        stream = cbt.grpc.read_delta(channel, base, target)
        for tuples in stream:
            for offset, length in tuples:
                print(offset, length)
        # The loop has ended, so the answer is complete; any failure would have raised.
        print("proven" if stream.proof == cbt.Proof.HOLDS else "complete")
    # [/ask]


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: ask.py ADDRESS BASE TARGET")
    try:
        main(*sys.argv[1:])
    except cbt.Error as error:
        sys.exit(f"{error.code.name}: {error}")
