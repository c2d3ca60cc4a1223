#!/usr/bin/env python3
"""Makes the seed corpora of the fuzzers: real samples of what they read, in the form that each one reads.

    fuzz/make_corpus.py --output DIR [--cbt CBT]

Writes DIR/<fuzzer>/<seed>. Skips seeds that need a missing tool (mke2fs, qemu-img; cbt for map files),
with a line on stderr. Random data has a fixed seed, except what those tools write.
"""

import argparse
import gzip
import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "tests" / "source" / "samples"


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, value):
    """A field of a protobuf message: an integer or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def roaring32(values):
    """Portable roaring bytes of array containers."""
    containers = {}
    for value in sorted(values):
        containers.setdefault(value >> 16, []).append(value & 0xFFFF)
    head = struct.pack("<II", 12346, len(containers))
    for key, members in sorted(containers.items()):
        head += struct.pack("<HH", key, len(members) - 1)
    at = len(head) + 4 * len(containers)
    body = b""
    for _, members in sorted(containers.items()):
        head += struct.pack("<I", at + len(body))
        body += struct.pack(f"<{len(members)}H", *members)
    return head + body


class Corpora:
    def __init__(self, output):
        self.output = pathlib.Path(output)
        self.counts = {}

    def add(self, fuzzer, name, data):
        folder = self.output / fuzzer
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        self.counts[fuzzer] = self.counts.get(fuzzer, 0) + 1


def stream_message(style, capacity, tuples):
    return field(1, style) + field(2, capacity) + b"".join(field(3, field(1, o) + field(2, n)) for o, n in tuples)


def add_messages(corpora):
    """decode: the messages of a stream."""
    tuples = [(0, 4096), (8192, 65536), (1 << 20, 1 << 30), ((1 << 62) + 4096, 512)]
    for style in (1, 2):
        for count in (0, 1, len(tuples)):
            message = field(1, style) + field(2, (1 << 63) - 1)
            for offset, size in tuples[:count]:
                message += field(3, field(1, offset) + field(2, size))
            corpora.add("decode", f"style{style}_{count}", message)
    corpora.add("decode", "out_of_order", field(3, field(2, 5) + field(1, 7)) + field(2, 100) + field(1, 2))
    corpora.add("decode", "unknown_fields", field(9, "later") + field(1, 1) + field(15, 3))


def requests():
    """The requests of a client of each contract: (name, contract, is a delta, bytes)."""
    token, session = "token", "t" * 32
    secrets = field(4, field(1, "user") + field(2, "value")) + field(4, field(1, "key") + field(2, "of a storage"))
    return [
        ("csi_allocated", 0, False, field(1, "vol1/monday") + field(2, 4096) + field(3, 256) + secrets),
        ("csi_delta", 0, True, field(1, "vol1/monday") + field(2, "vol1/tuesday") + field(3, 1 << 14) + field(4, 8192)),
        ("csi_absent", 0, True, field(1, "monday") + field(2, "x")),
        ("kubernetes_allocated", 1, False, field(1, token) + field(2, "ns") + field(3, "s") + field(4, 100) + field(5, 7)),
        ("kubernetes_delta", 1, True, field(1, token) + field(2, "ns") + field(3, "ns/base") + field(4, "target") + field(6, 10)),
        ("session_allocated", 2, False, field(1, session) + field(2, "vol") + field(3, "s1") + field(4, 1 << 13) + field(5, 50)),
        ("session_delta", 2, True, field(1, session) + field(2, "vol") + field(3, "s1") + field(4, "s2") + field(5, 1) + field(6, 1)),
        ("negative", 0, True, field(1, "a") + field(2, "b") + field(3, (1 << 64) - 1) + field(4, (1 << 64) - 5)),
    ]


def add_requests(corpora):
    """request, and service with the choices for its answer in front."""
    for number, (name, contract, delta, data) in enumerate(requests()):
        corpora.add("request", name, data)
        for style in (0, 128):
            method = contract + style + (0 if delta else 64)
            # The byte modulo three chooses the contract.
            method += (contract - method) % 3
            corpora.add("service", f"{name}_{style}", bytes([method, number * 36 % 256, number * 21 % 256, number]) + data)
    page = stream_message(0, 1 << 30, [])[2:] + field(3, field(1, 0) + field(2, 4096) + field(3, field(1, "block token")))
    corpora.add("request", "page", field(1, 1 << 20) + field(2, "next") + field(3, field(1, 8192) + field(2, 4096)))
    corpora.add("request", "page_tokens", page)


def add_calls(corpora):
    """calls: the bytes that its functions draw, in their order; zeros follow where a seed ends."""
    def number(value):
        return bytes([value]) if value < 200 else bytes([200]) + struct.pack("<H", value)

    # A function's number, and then what it draws. `to` and the others are places of handles.
    def copied(to, size):
        return bytes([0, to, size, 0])

    def owned(to, size):
        return bytes([0, to, size, 2])

    def cursor(to, kind, capacity, granularity, first=0, second=0, *rest):
        return bytes([1, to]) + number(capacity) + number(granularity) + bytes([0, 0, 0, 0, first, second, kind, *rest])

    def read(place, turns, how):
        return bytes([2, place, turns]) + bytes([how, 8] if how else [0]) * turns

    def transform(place, other, to, amount, kind):
        return bytes([3, place, other, to]) + number(amount) + bytes([kind])

    bits = copied(0, 7) + owned(1, 7)
    bitmap = cursor(0, 0, 56 * 4, 4)
    corpora.add("calls", "bitmap", bits + bitmap + read(0, 4, 0))
    corpora.add("calls", "bitmaps", bits + cursor(0, 1, 56, 1, 0, 1, 0) + read(0, 15, 1))
    corpora.add("calls", "memory", bits + cursor(0, 4, 0, 0, 0, 0, 0) + cursor(1, 3, 0, 0, 0, 1, 0) + read(0, 3, 0) + read(1, 3, 0))
    corpora.add("calls", "extents", cursor(0, 2, 100, 1, 0, 0, 0, 5, 20, 5, 40, 5, 60, 5, 4) + read(0, 9, 1))
    more = {3: bytes([100]), 5: bytes([2])}  # the end of a clip, the number of inputs of a union
    for kind in range(8):
        corpora.add("calls", f"transform_{kind}", bits + bitmap + cursor(1, 1, 56 * 4, 4, 0, 1, 0) +
                    transform(0, 1, 2, 8, kind) + more.get(kind, b"") + read(2, 4, kind % 2))
    corpora.add("calls", "seek_and_arrow", bits + bitmap + bytes([4, 0, 0]) + number(60) + read(0, 2, 0) +
                bitmap + bytes([4, 0, 3, 4, 0, 7]))
    corpora.add("calls", "callbacks", cursor(0, 6, 50, 1) + bytes([2, 0, 8]) + bytes([0, 3, 1, 3, 2, 9, 0]) * 8)
    build = bytes([5, 0, 0, 0]) + number(4096) + number(16) + bytes([0, 0])
    for offset in (0, 64, 320, 1024):
        build += bytes([5, 0, 0, 0]) + number(4096) + number(16) + bytes([1]) + number(offset) + number(32) + bytes([0])
    build += bytes([5, 0, 0, 0]) + number(4096) + number(16) + bytes([2, 0])
    more = {3: bytes([0, 16]), 4: bytes([2]), 8: bytes([0]), 11: bytes([1])}
    for kind in (3, 4, 5, 6, 7, 8, 9, 11):
        corpora.add("calls", f"map_{kind}", build + bits + bitmap + bytes([5, 0, 0, 1]) + number(8192) + number(16) + bytes([kind]) +
                    more.get(kind, b"") + cursor(1, 5, 0, 0, 0, 0, 0) + read(1, 3, 0))
    service = bytes([6, 0, 0, 0, 0, 0, 0, 0])
    stream = bytes([6, 0, 0, 1, 1, 1, 0, 0])
    corpora.add("calls", "stream", bits + bitmap + service + stream + bytes([6, 0, 0, 2, 0, 15, 0, 1]))
    corpora.add("calls", "stream_cancelled", bits + bitmap + service + stream + bytes([6, 0, 0, 3, 6, 0, 0, 2, 0, 3, 0, 1]))
    tracker = bytes([7, 0, 0, 0, 63, 3])
    write = bytes([7, 0, 0, 1]) + number(9) + number(12)
    corpora.add("calls", "tracker", tracker + write + bytes([7, 0, 0, 2]) + write + bytes([7, 0, 0, 3, 7, 0, 0, 4, 7, 0, 1, 5]))
    # a, b and c; then a delta of both, one of a single snapshot, b removed, and the chain opened again.
    chain = bytes([9, 0, 0, 0, 0]) + number(4096) + number(16) + b"".join(bytes([9, 0, 2, to, 1, 0, 1, 3]) for to in (1, 2))
    asked = bytes([9, 0, 3, 0, 0, 2]) + read(0, 1, 0) + bytes([9, 0, 3, 1, 1, 1, 9, 0, 4, 0])
    corpora.add("calls", "chain", build + chain + asked + bytes([9, 0, 2, 1, 0, 9, 0, 5, 9, 1, 1, 0, 0, 9, 1, 3, 0, 0, 2]) + read(0, 1, 0))
    corpora.add("calls", "client", bytes([8, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 10, 0, 0, 0, 1, 8, 0, 1, 8, 0, 2, 8, 0, 3, 8, 0, 1, 8, 0, 4]))
    corpora.add("calls", "server", service + bytes([8, 0, 5, 1, 0, 0, 1, 0, 0, 0]))


def add_wire(corpora):
    """wire: the message's number, then its bytes; 0 are values to encode."""
    tuples = [(0, 4096), (8192, 65536), (1 << 20, 1 << 30), ((1 << 62) + 4096, 512)]
    for kind in (1, 2, 3):
        corpora.add("wire", f"response{kind}", bytes([kind]) + stream_message(1, (1 << 63) - 1, tuples))
        corpora.add("wire", f"long{kind}", bytes([kind]) + stream_message(1, 1 << 40, [(i << 12, 4096) for i in range(0, 60, 2)]))
        corpora.add("wire", f"unusual{kind}", bytes([kind]) + b"\x8b\x01\x08\x01\x8c\x01" + field(3, field(2, 5) + field(7, "x")) +
                    b"\x88\x80\x00\x01" + b"\x10" + b"\xff" * 9 + b"\x01")
    corpora.add("wire", "page", b"\4" + field(1, 1 << 30) + field(2, "next") + field(3, field(1, 512) + field(2, 512) +
                field(3, field(1, "token") + field(2, field(1, 1)) + field(3, 60))))
    for name, contract, delta, data in requests():
        corpora.add("wire", name, bytes([5 + 2 * contract + delta]) + data)
    corpora.add("wire", "list_deltas", b"\x0b" + field(1, "from") + field(2, "to") + field(3, field(1, "k") + field(2, "v")) +
                field(4, 100) + field(5, "AQAAAAA"))
    for shape in range(8):
        corpora.add("wire", f"encode{shape}", bytes([0, 1, shape, 1, 2, 3, 4, 5, 6, 7]) +
                    b"".join(bytes([shape]) + bytes(range(k, k + shape)) for k in range(0, 160, 4)))


def add_streams(corpora):
    """stream: where it starts, max_results, form; then messages as choices or in bytes."""
    for style in (1, 2):
        head = bytes([0, 0, 1])
        script = bytes([0x51, style, 7]) + (1 << 50).to_bytes(7, "little") + bytes([1, 0, 7] + [1, 3] * 4) * 2
        corpora.add("stream", f"script{style}", head + script + bytes([0x41] + [1, 9] * 4) * 6 + bytes(range(40)))
        messages = [stream_message(style, 1 << 30, [(k << 20, 4096), ((k << 20) + 8192, 4096)]) for k in range(8)]
        for start in (0, 1):
            corpora.add("stream", f"bytes{style}_{start}", bytes([start, 5][: 1 + start]) + b"\0\0" +
                        b"".join(bytes([len(m)]) + m for m in messages))


def add_tokens(corpora):
    """tokens: choices, the last of which come first; and token-like bytes."""
    generator = random.Random(11)
    for i in range(8):
        corpora.add("tokens", f"choices{i}", generator.randbytes(24 << (i % 3)))
    corpora.add("tokens", "base64", b"AQAQAAAAAAAAuTpDkW2pcWb3kDR7HJSMYw==")


def add_grpc_messages(corpora):
    """messages: a limit, then pieces of a stream, each after its length; answers as choices; values of headers."""
    def framed(message, flag=0):
        return struct.pack(">BI", flag, len(message)) + message

    stream = framed(b"one") + framed(b"") + framed(b"three", 0) + framed(b"x" * 40)
    for step in (1, 5, 7, 30):
        pieces = [stream[at:at + step] for at in range(0, len(stream), step)]
        corpora.add("messages", f"cut{step}", struct.pack("<H", 64) + b"".join(bytes([len(p) << 2 | 1]) + p for p in pieces))
    for name, tail in (("compressed", framed(b"one", 1)), ("long", struct.pack(">BI", 0, 1 << 31)), ("flag", framed(b"", 9))):
        corpora.add("messages", name, struct.pack("<H", 64) + bytes([len(tail) << 2 | 1]) + tail)
    # Limit, headers, data, trailers with grpc-status 0, END_STREAM.
    data = framed(b"one") + framed(b"two")
    body = bytes([3 | len(data) << 3]) + data
    corpora.add("messages", "answer", b"\x40\x00\x00" + body + b"\x02\x45\x01" + b"0" + b"\x07")
    corpora.add("messages", "answer_cut", b"\x40\x00\x00" + bytes([3 | 7 << 3]) + data[:7] + b"\x02\x45\x01" + b"0" + b"\x07")
    # A grpc-status without a value in the headers, OK in the trailers.
    corpora.add("messages", "early_status", b"\x40\x00\x00\x60\x00" + body + b"\x02\x45\x01" + b"0" + b"\x07")
    corpora.add("messages", "trailers_only", b"\x40\x08\x40\x01" + b"0" + b"\x07")
    for value in ("20S", "99999999H", "100%25 %C3%A4", "Zm9vYg==", "Zm9vYg", "application/grpc+proto", "0", "16"):
        corpora.add("messages", "value_" + value.replace("/", "_").replace("%", "_").replace(" ", "_"), value.encode())


def add_watch(corpora):
    """watch: target and limit, the pieces' size, then lines of events."""
    def line(kind, version, name="x", object_kind="ConfigMap", value="1", namespace="a", **metadata):
        content = {"kind": object_kind, "apiVersion": "v1", "metadata": {"name": name, "namespace": namespace, "uid": "u",
                   "resourceVersion": str(version), "labels": {"value": value}, **metadata}, "data": {"value": value}}
        return json.dumps({"type": kind, "object": content}).encode() + b"\n"

    bookmark = line("BOOKMARK", 9, annotations={"k8s.io/initial-events-end": "true"})
    events = line("ADDED", 1) + line("ADDED", 2, "y") + bookmark + line("MODIFIED", 10, value="2") + line("DELETED", 11, "y")
    gone = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "old",
                       "details": {"retryAfterSeconds": 1}}}).encode() + b"\n"
    for step in (1, 7, 100):
        corpora.add("watch", f"events{step}", bytes([4, step]) + events)
    corpora.add("watch", "gone", bytes([4, 9]) + events + gone)
    corpora.add("watch", "cut", bytes([6, 9]) + events[:-20])
    corpora.add("watch", "long", bytes([0, 9]) + events)
    corpora.add("watch", "other_kind", bytes([5, 9]) + line("ADDED", 1))


def add_lines(corpora):
    """lines: the text, then the kind of file."""
    token = "canary-789012345678901234567890123456789"
    texts = (
        "# Monday\nbase sunday\ntarget monday\nfrom thin-delta:device=3\ncapacity 64G\nbase-capacity 32G\naddress .sun-mon.xml\n",
        f"{token} operator prod,staging\nother root *\n",
        "prod monday vol1/monday\nprod tuesday -\n",
        f"{token} prod monday,tuesday 2036-01-31T12:00:00Z\n{token[::-1]} staging monday -\n",
        f"user=operator\nkey={token}\n")
    for kind, text in enumerate(texts):
        corpora.add("lines", f"kind{kind}", text.encode() + bytes([kind]))
        corpora.add("lines", f"cut{kind}", text[:-3].encode() + bytes([kind]))


def add_answers(corpora):
    """answers: what kind it is, then a list, an error, another answer, or credentials."""
    page = ("<?xml version='1.0'?><ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true"
            "</IsTruncated><NextContinuationToken>t+1</NextContinuationToken><Contents><Key>a%2Fb+c</Key>"
            "<Size>12</Size></Contents></ListBucketResult>")
    texts = [(0, "page", page),
             (1, "error", "<Error><Code>NoSuchKey</Code><Message>a &lt; b</Message></Error>"),
             (1, "begun", "<InitiateMultipartUploadResult><UploadId>u&amp;1</UploadId></InitiateMultipartUploadResult>"),
             (1, "done", "<CompleteMultipartUploadResult><ETag>\"x-2\"</ETag></CompleteMultipartUploadResult>"),
             (2, "text", "a<b>&c;"),
             (3, "keys", "[default]\naws_access_key_id = A\naws_secret_access_key=b\n"),
             (4, "cosi", '{"spec":{"bucketName":"b","secretS3":{"endpoint":"https://h","region":"r",'
                         '"accessKeyID":"A","accessSecretKey":"s"}}}')]
    for kind, name, text in texts:
        corpora.add("answers", name, bytes([kind]) + text.encode())
        corpora.add("answers", name + "_cut", bytes([kind]) + text[:-3].encode())


def add_objects(corpora):
    """objects: the text, then the decoder's number."""
    meta = '"metadata":{"name":"n","namespace":"ns","uid":"u","resourceVersion":"7","labels":{"l":"1"}}'
    objects = (
        '{"kind":"TokenReview","status":{"authenticated":true,"user":{"username":"u","groups":["g"],"extra":{"k":["v"]}},"audiences":["a"]}}',
        '{"kind":"SubjectAccessReview","spec":{"resourceAttributes":{"verb":"get"},"user":"u"},"status":{"allowed":true}}',
        '{"kind":"TokenRequest","status":{"token":"t","expirationTimestamp":"2024-05-01T10:00:00Z"}}',
        f'{{"kind":"VolumeSnapshot",{meta},"spec":{{"source":{{"persistentVolumeClaimName":"p"}}}},"status":{{"readyToUse":true}}}}',
        f'{{"kind":"VolumeSnapshotContent",{meta},"spec":{{"driver":"d","source":{{"volumeHandle":"v"}}}},"status":{{"creationTime":1714557600123456789}}}}',
        f'{{"kind":"Secret",{meta},"type":"Opaque","data":{{"a":"aGk="}}}}',
        f'{{"kind":"Lease",{meta},"spec":{{"holderIdentity":"h","renewTime":"2024-05-01T10:00:00.000001Z","leaseTransitions":1}}}}')
    for i, text in enumerate(objects):
        corpora.add("objects", f"object{i}", text.encode() + b"\0")
    answers = (
        f'{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"9","continue":"c"}},"items":[{{{meta}}}]}}',
        f'{{"kind":"ConfigMap","apiVersion":"v1",{meta},"data":{{"k":"v"}}}}',
        '{"kind":"Status","status":"Failure","message":"m","reason":"Conflict","details":{"retryAfterSeconds":1},"code":409}')
    for i, text in enumerate(answers):
        corpora.add("objects", f"answer{i}", text.encode() + b"\1")
    config = ("current-context: x\nclusters:\n- name: c\n  cluster: {server: https://h, certificate-authority-data: Q0E=}\n"
              "users: [{name: u, user: {exec: {command: c, args: [a], apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}}]\n"
              "contexts: [{name: x, context: {cluster: c, user: u, namespace: n}}]\n")
    corpora.add("objects", "kubeconfig", config.encode() + b"\2")
    corpora.add("objects", "credential", b'{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"t"}}\3')
    corpora.add("objects", "time", b"2024-02-29T23:59:58.123456+02:30\4")


def add_repository(corpora):
    """repository: the bytes, then the decoder's number."""
    name = "ab" * 32
    for i, (text, kind) in enumerate((
            (f'{{"supersedes":["{name}"],"packs":[{{"id":"{name}","blobs":[{{"id":"{name}","type":"data","offset":0,"length":40}},'
             f'{{"id":"{name}","type":"tree","offset":40,"length":50,"uncompressed_length":99}}]}}]}}', 0),
            (f'{{"nodes":[{{"name":"v","type":"file","size":7,"content":["{name}","{name}"]}},{{"name":"d","type":"dir","subtree":"{name}"}}]}}', 1),
            (f'{{"version":2,"id":"{name}","chunker_polynomial":"25b468838dcb75"}}', 3),
            (f'{{"time":"2024-05-01T10:00:00.5+02:00","tree":"{name}","parent":"{name}","paths":["/v"],"tags":["cbt"]}}', 3),
            ('{"time":"2024-05-01T10:00:00Z","exclusive":true,"hostname":"h","username":"u","pid":7}', 3),
            ('{"kdf":"scrypt","N":32768,"r":8,"p":1,"salt":"AAAA","data":"AAAA"}', 3))):
        corpora.add("repository", f"file{i}", text.encode() + bytes([kind]))
    header = struct.pack("<BI", 0, 40) + b"a" * 32 + struct.pack("<BII", 3, 50, 99) + b"b" * 32
    corpora.add("repository", "pack", struct.pack(">I", 90) + header + b"\2")
    corpora.add("repository", "frame", bytes.fromhex("28b52ffd0403190000616161") + b"\4")


def add_aggregated(corpora):
    """What the aggregated API server decodes; the last byte is the decoder."""
    api = '"apiVersion":"cbt.storage.k8s.io/v1alpha1","kind":"VolumeSnapshotDelta"'
    corpora.add("aggregated", "delta", f'{{{api},"metadata":{{"name":"n"}},"spec":{{"targetVolumeSnapshotName":"t","limit":9}}}}'.encode() + b"\0")
    corpora.add("aggregated", "request", b'{"target_snapshot_id":"t","base_snapshot_id":"b","block_size_bytes":4096,"starting_block":1,'
                                         b'"max_blocks":9,"secret":{"namespace":"n","name":"s"}}\1')
    corpora.add("aggregated", "page", b'{"block_size_bytes":4096,"volume_size_bytes":409600}\n{"block":0}\n'
                                      b'{"block":7,"data_token":{"token":"t","ttl_seconds":1}}\n'
                                      b'{"complete":true,"blocks":2,"next_block":8,"more":true}\n\2')
    corpora.add("aggregated", "discovery", b'{"metadata":{"name":"d"},"spec":{"driverName":"d","clientConfig":{"url":"https://h:1/p","caBundle":"UEVN"}}}\3')
    corpora.add("aggregated", "config", b'{"data":{"requestheader-username-headers":"[\\"X-Remote-User\\"]","requestheader-allowed-names":"[]"}}\4')
    corpora.add("aggregated", "http", b"POST /apis/cbt.storage.k8s.io/v1alpha1/namespaces/prod/volumesnapshotdeltas?verbose HTTP/1.1\r\n"
                                      b"X-Remote-User: u\r\nContent-Length: 2\r\n\r\n{}\5")
    corpora.add("aggregated", "chunked", b"POST /apis HTTP/1.1\r\nAccept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList\r\n"
                                         b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n\5")


def add_components(corpora):
    """What the components of COSI decode; the last byte is the decoder."""
    corpora.add("components", "info", field(1, b"rgw.example.com") + b"\0")
    corpora.add("components", "grant", field(1, b"account") + field(2, b'{"endpoint":"http://a"}') + b"\0")
    entry = field(1, b"csi.storage.k8s.io/ephemeral") + field(2, b"true")
    corpora.add("components", "publish", field(1, b"volume") + field(4, b"/target") + field(5, field(2, field(3, b"1")))
                + field(8, entry) + b"\1")
    corpora.add("components", "credentials", b'{"endpoint":"http://a","region":"eu","accessKeyID":"k","accessSecretKey":"s"}\2')
    corpora.add("components", "bucket", b'{"metadata":{"name":"b"},"spec":{"provisioner":"a","deletionPolicy":"Delete","protocol":{"s3":{}},'
                b'"allowedNamespaces":[{"name":"n"}],"bucketRequest":{"name":"r","namespace":"n","uid":"u"}}}\3')


def add_maps(corpora):
    """portable: roaring bytes; maps: choices."""
    values = [0, 1, 2, 100, 65535, 65536, 1 << 31, (1 << 32) - 1]
    small = roaring32(values)
    corpora.add("portable", "portable64", struct.pack("<QI", 1, 0) + small)
    corpora.add("portable", "portable64_empty", struct.pack("<Q", 0))
    corpora.add("portable", "portable_full_array", struct.pack("<QI", 1, 7) + roaring32(range(0, 8192, 2)))
    corpora.add("maps", "algebra", bytes(range(256)) * 2)
    generator = random.Random(5)
    for i in range(12):
        corpora.add("maps", f"algebra{i}", generator.randbytes(40 + 40 * i))
    runs = struct.pack("<IBHHH", 12347, 1, 0, 9, 2) + struct.pack("<4H", 5, 3, 100, 5)
    corpora.add("portable", "portable_runs", struct.pack("<QI", 1, 0) + runs)
    corpora.add("portable", "portable_bitset", struct.pack("<QI", 1, 0) + struct.pack("<IIHHI", 12346, 1, 0, 4999, 16) +
                (b"\x55" * 1250 + bytes(8192 - 1250)))


def map_file(blocks, names=("vol1", "monday", "tuesday"), payload=None):
    """A change-map file without its checksums, which the fuzzer fills in."""
    payload = payload or struct.pack("<QI", 1, 0) + roaring32(blocks)
    text = b"".join(name.encode() for name in names)
    padded = text + bytes(-len(text) % 8)
    header_bytes = 80 + len(padded) + 8 * -(-len(payload) // 65536) + 8
    head = b"\x89CBM\r\n\x1a\n" + struct.pack("<HHIQQQQQQI4HI", 1, 0, header_bytes, 0, 0, 1 << 30, 4096, len(set(blocks)),
                                               len(payload), 16, *(len(name) for name in names), 0, 0)
    return (head + padded).ljust(header_bytes, b"\0") + payload


def add_map_files(corpora, cbt):
    """map_files: kind and whether to seal it, which bit to flip, then the file; for a log, choices."""
    for label, blocks in (("one", [0]), ("some", [0, 1, 2, 100, 65535, 65536, 1 << 17]), ("array", range(0, 8000, 3))):
        corpora.add("map_files", f"map_{label}", b"\1\x40\2" + map_file(list(blocks)))
    corpora.add("map_files", "map_nameless", b"\1\7\0" + map_file([3], ("", "", "")))
    snapshots = [(0, 0, "monday"), (1, 1, "tuesday"), (2, 2, "wednesday"), (4, 5, "friday")]
    for major, label in ((1, "manifest_without_times"), (2, "manifest")):
        manifest = b"\x89CBC\r\n\x1a\n" + struct.pack("<HHQQQH", major, 0, 4096, 5, 7, 4) + b"vol1" + struct.pack("<Q", len(snapshots))
        for slot, number, name in snapshots:
            manifest += struct.pack("<QQQ", slot, 1 << 30, 1 << 29) + struct.pack("<q", 1767225600 * 10**9 + slot)[:8 * (major - 1)]
            manifest += struct.pack("<QQH", number, number * 77, len(name)) + name.encode()
        manifest += struct.pack("<Q", 2) + struct.pack("<BQQQ", 1, 0, 3, 9) + struct.pack("<BQQQ", 2, 0, 4, 8) + bytes(8)
        corpora.add("map_files", label, b"\x09\5\0" + manifest)
    tracker = b"\x89CBT\r\n\x1a\n" + struct.pack("<HHQQQQQBH", 2, 0, 5, 1 << 30, 4096, 9, 40, 2, 4) + b"vol1" + b"\2"
    for number, name, exact, map_number, logs in ((7, "monday", 0, 31, (30, 33)), (8, "tuesday", 1, 0, (35,))):
        tracker += struct.pack("<QH", number, len(name)) + name.encode()
        tracker += struct.pack("<BQQI", exact, map_number, map_number * 77, len(logs))
        tracker += b"".join(struct.pack("<QQ", log, log * 77) for log in logs)
    tracker += struct.pack("<QQQ", 12, 12 * 77, 7) + bytes(8)
    corpora.add("map_files", "tracker", b"\x05\5\0" + tracker)
    for seal in (0, 1):
        log = bytes([0x0C | seal, 255, 20, 0, 1, 0, 0])
        corpora.add("map_files", f"log_{seal}", log + (b"" if seal else bytes(8)) + bytes([0, 3, 0, 1, 0, 2, 1, 0]))
        corpora.add("map_files", f"log_edited_{seal}", log[:-1] + bytes([1, 16, 77]) + bytes(8) + bytes([0, 3, 2, 1, 3, 2]))
    if cbt is None:
        print("make_corpus: no map files: --cbt was not given", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        bits, out = pathlib.Path(folder) / "bits", pathlib.Path(folder) / "map.cbm"
        for name, content in (("sparse", bytes([1, 0, 0, 128]) * 64), ("full", b"\xff" * 8192), ("empty", bytes(32))):
            bits.write_bytes(content)
            subprocess.run([cbt, "map", "convert", bits, "--from", "bitmap", "--block-size", "4096", "--capacity",
                            str(len(content) * 8 * 4096), "--volume-name", "vol1", "--base-name", "monday", "--target-name", "tuesday",
                            "--output", out], check=True)
            corpora.add("map_files", f"file_{name}", b"\0\x33\1" + out.read_bytes())


def add_lists(corpora):
    """import: the importer's number, its options in three bytes, where to cut, then the list."""
    def add(importer, name, data, purpose=1, capacity=30):
        corpora.add("import", name, bytes([importer, purpose, capacity, 1, 0, max(0, len(data) - 3) & 255]) + data)

    for name in ("rbd_diff_v1_bluestore.bin", "rbd_diff_v1_shrink.bin"):
        add(0, name, (SAMPLES / name).read_bytes(), capacity=0)
    # Short ones, cut between two records and inside one.
    records = [b"z" + struct.pack("<QQ", 4096 * k, 512) for k in range(0, 12, 3)] + [b"w" + struct.pack("<QQ", 65536, 4) + b"data"]
    head = b"rbd diff v1\n" + b"f" + struct.pack("<I", 2) + b"s1" + b"t" + struct.pack("<I", 2) + b"s2" + b"s" + struct.pack("<Q", 1 << 20)
    for cut in (len(head) + 17, len(head) + 30):
        corpora.add("import", f"rbd_short_{cut}", bytes([0, 1, 0, 1, 0, cut]) + head + b"".join(records) + b"e")
    # The data of an export is uniform: short pieces suffice.
    export = gzip.decompress((SAMPLES / "rbd_export_v2_with_snaps.bin.gz").read_bytes())
    add(1, "rbd_export_head", export[:300], capacity=0)
    add(2, "rbd_list", json.dumps([{"offset": 4096 * i, "length": 4096, "exists": str(i % 2 == 0).lower()}
                                   for i in range(0, 20, 3)]).encode())
    entry = {"start": 0, "length": 65536, "depth": 0, "present": True, "zero": False, "data": True, "offset": 327680}
    add(3, "qemu_map", json.dumps([entry, dict(entry, start=65536, depth=1)]).encode(), capacity=0)
    add(4, "thin_delta.xml", (SAMPLES / "thin_delta.xml").read_bytes())
    add(4, "thin_delta_verbose.xml", (SAMPLES / "thin_delta_verbose.xml").read_bytes())
    add(5, "thin_dump.xml", (SAMPLES / "thin_dump.xml").read_bytes(), purpose=2)
    add(5, "thin_dump_shared", b'<superblock data_block_size="8"><def name="a"><range_mapping origin_begin="2" data_begin="0" '
        b'length="3"/></def><device dev_id="1" mapped_blocks="3"><ref name="a"/></device></superblock>', purpose=2)
    add(6, "era_invalidate.xml", (SAMPLES / "era_invalidate.xml").read_bytes())
    add(7, "era_dump.xml", (SAMPLES / "era_dump.xml").read_bytes(), capacity=0)
    page = {"BlockSize": 524288, "VolumeSize": 1, "ChangedBlocks": [{"BlockIndex": i, "FirstBlockToken": "AAAB"} for i in (1, 5)]}
    add(8, "ebs", (json.dumps(dict(page, NextToken="x")) + json.dumps(page)).encode(), capacity=0)
    add(8, "ebs_blocks", json.dumps({"Blocks": [{"BlockIndex": 3, "BlockToken": "t"}], "BlockSize": 524288, "VolumeSize": 1,
                                     "NextToken": None}).encode(), purpose=2, capacity=0)
    add(9, "vmware", json.dumps([{"startOffset": 0, "length": 1073741824 + 15360,
                                  "changedArea": [{"start": 65536, "length": 4096}]}]).encode())
    add(10, "bitmap", bytes(range(64)), capacity=20)
    header = '{"block_metadata_type":"VARIABLE_LENGTH","volume_capacity_bytes":1048576'
    tuples = '{"byte_offset":0,"size_bytes":4096}', '{"byte_offset":8192,"size_bytes":4096}'
    marker = '"tuples":2,"bytes":8192,"digest":"xxh3-64:4e55d285f0e23415"'
    add(11, "ndjson", "\n".join((header + "}", *tuples, '{"complete":true,' + marker + "}", "")).encode(), capacity=0)
    add(12, "json", f'{header},"block_metadata":[{",".join(tuples)}],{marker},"complete":true}}\n'.encode(), capacity=0)
    add(13, "csv", b"byte_offset,size_bytes\n0,4096\n8192,4096\ncomplete,2\n")
    head = b"partclone-image\0" + b"0.3.23".ljust(14, b"\0") + b"0002\xde\xc0" + b"EXTFS".ljust(16, b"\0")
    for mode, bits in ((1, b"\x0f\xf0"), (0, b"")):
        image = head + struct.pack("<QQQQIIHHHHIBB", 17 * 4096, 16, 8, 8, 4096, 18, 2, 64, 32, 4, 1024, 1, mode)
        image += struct.pack("<I", zlib.crc32(image) ^ 0xFFFFFFFF) + bits
        add(14, f"partclone_{mode}", image + struct.pack("<I", zlib.crc32(bits) ^ 0xFFFFFFFF), capacity=0)
    add(10, "bitmap_base64", b"AAECAwQFBgcICQ==\n" * 8, capacity=16)


def add_images(corpora):
    """qcow2, ext_filesystem: images made by their own tools, and the samples with bitmaps."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if shutil.which("qemu-img") and shutil.which("qemu-io"):
            (folder / "base").write_bytes(bytes(1 << 16))
            for label, options in (("v2", "compat=0.10,cluster_size=512"), ("v3", "compat=1.1,cluster_size=512"),
                                   ("extended", "extended_l2=on,cluster_size=16384"),
                                   # With a header extension that names the format of the backing
                                   # file.
                                   ("overlay", "compat=1.1,cluster_size=512,backing_file=base,backing_fmt=raw")):
                image = folder / label
                run = lambda *command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                run("qemu-img", "create", "-q", "-f", "qcow2", "-o", options, image, "64K")
                run("qemu-io", "-c", "write 0 1k", "-c", "write -z 8k 1k" if label != "v2" else "write 9k 512", image)
                run("qemu-img", "snapshot", "-c", "s", image)
                run("qemu-io", "-c", "write 512 512", image)
                if label == "v3":
                    run("qemu-img", "bitmap", "--add", "-g", "512", image, "b")
                    run("qemu-io", "-c", "write 4k 512", image)
                data = image.read_bytes()
                corpora.add("qcow2", label, bytes(4) + data[: 1 << 16])
                corpora.add("overlay", label, bytes([2]) + data[: 1 << 16])
                if label == "overlay":
                    # Only the first cluster, so that every mutation hits the header.
                    corpora.add("qcow2", "header", bytes(4) + data[:512])
        else:
            print("make_corpus: no qcow2 images: qemu-img is not installed", file=sys.stderr)
        if shutil.which("mke2fs"):
            for label, arguments in (("ext2_1k", ["-t", "ext2", "-b", "1024"]), ("ext4", ["-t", "ext4", "-b", "1024"]),
                                     ("bigalloc", ["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"]),
                                     # Without checksums, which would reveal every mutation.
                                     ("ext4_plain", ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"])):
                image = folder / label
                subprocess.run(["mke2fs", "-q", "-F", "-U", "clear", "-N", "16", *arguments, image, "160"], check=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                whole = image.read_bytes()
                data = bytearray(whole.rstrip(b"\0"))
                # How many pieces of 64 KiB follow: at least the omitted zeros.
                data[0] = -(-(len(whole) - len(data)) // 65536)
                corpora.add("ext_filesystem", label, bytes(data))
        else:
            print("make_corpus: no file systems: mke2fs is not installed", file=sys.stderr)


def add_rest(corpora):
    """Fuzzers whose input is a list of choices: some of each length, so that every choice is in reach."""
    generator = random.Random(7)
    for fuzzer in ("kernels", "transforms", "file_extents", "btrfs_send", "overlay"):
        for i in range(16):
            corpora.add(fuzzer, f"ramp{i}", bytes((i * 37 + k * (i + 1)) & 0xFF for k in range(64 << (i % 4))))
        for i in range(16):
            corpora.add(fuzzer, f"random{i}", generator.randbytes(32 << (i % 4)))
    # Two lists of one extent at the same address; in the second it has a flag without meaning.
    place = struct.pack("<HHH", 0, 0x4000, 0x2000)
    for label, flag in (("same", 0), ("flagged", 5)):
        corpora.add("file_extents", label, bytes([0x50, 1, 1, 0]) + place + bytes([1, 32 | 64]) + place + bytes([flag]))
    corpora.add("nbd", "two_entries", bytes([1, 0]) + struct.pack("<QQ4I", 0, 1 << 30, 65536, 0, (1 << 30) - 65536, 3))
    corpora.add("nbd", "short", bytes([2, 1]) + struct.pack("<QQ2I", 4096, 1 << 20, 512, 1))


def add_cosi(corpora):
    """cosi_messages and cosi_decoders: the bytes, then revision and message, or the decoder."""
    parameters = field(1, "versioning") + field(2, "true")
    s3 = field(1, "us-east-1") + field(2, 2)
    keys = b"".join(field(1, field(1, key) + field(2, "text"))
                    for key in ("endpoint", "region", "accessKeyID", "accessSecretKey"))
    info = field(1, "bucket") + field(2, "https://h") + field(3, "us-east-1") + field(4, field(1, 1))
    json_keys = '{"endpoint":"https://h","region":"r","accessKeyID":"a","accessSecretKey":"s"}'
    messages = {
        (0, 0): field(1, "br-1") + field(2, field(1, s3)) + field(3, parameters),
        (0, 3): field(1, "br-1") + field(2, "ba-1") + field(3, '{"Effect":"Allow"}') + field(4, parameters),
        (0, 7): field(1, "ba-1") + field(2, json_keys),
        (1, 0): field(1, "br-1") + field(2, parameters),
        (1, 3): field(1, "br-1") + field(2, "ba-1") + field(3, 1) + field(4, parameters),
        (1, 6): field(1, "br-1") + field(2, field(1, s3)),
        (1, 7): field(1, "ba-1") + field(2, field(1, "s3") + field(2, keys)),
        (2, 0): field(1, "bc-1") + field(2, field(1, 1)) + field(4, parameters),
        (2, 3): field(1, "ba-1") + field(2, field(1, 1)) + field(3, field(1, 1)) + field(5, parameters) +
                field(6, field(1, "bc-1") + field(2, field(1, 2))),
        (2, 4): field(1, "ba-1") + field(6, field(1, "bc-1")),
        (2, 5): field(1, "driver") + field(2, field(1, 1)),
        (2, 7): field(1, "ba-1") + field(2, field(1, "bc-1") + field(2, field(1, info))) +
                field(3, field(1, field(1, "a") + field(2, "s"))),
    }
    for (revision, message), data in messages.items():
        corpora.add("cosi_messages", f"{revision}-{message}", data + bytes([revision + 3 * message]))
    statement = '{"Effect":"Allow","Action":["s3:GetObject"],"Resource":"arn:aws:s3:::x/logs/*"}'
    user = ('{"user_id":"u","display_name":"d","suspended":0,"keys":[{"user":"u","access_key":"a","secret_key":"s"}],'
            '"caps":[]}')
    static = ('{"endpoint":"https://h","region":"r","buckets":["photos"],"accounts":[{"name":"web","accessKeyID":"a",'
              '"accessSecretKey":"s","access":[{"bucket":"photos","mode":"ReadOnly"}]}]}')
    texts = (
        (0, statement), (0, f"[{statement}]"), (0, json.dumps({"policy": statement})),
        (1, '{"Version":"2012-10-17","Statement":[{"Sid":"account","Effect":"Deny"},{"Sid":"other"}]}'),
        (2, user), (2, "<Tagging><TagSet><Tag><Key>k</Key><Value>v</Value></Tag></TagSet></Tagging>"),
        (2, "<Error><Code>NoSuchBucket</Code></Error>"), (2, '{"Code":"NoSuchUser"}'),
        (2, "<ListVersionsResult><Version><Key>k</Key></Version></ListVersionsResult>"),
        (3, static), (4, "COSI account of driver for one two -three"))
    for i, (decoder, text) in enumerate(texts):
        corpora.add("cosi_decoders", f"text{i}", text.encode() + bytes([decoder]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", required=True)
    parser.add_argument("--cbt")
    arguments = parser.parse_args()
    corpora = Corpora(arguments.output)
    for add in (add_messages, add_requests, add_calls, add_wire, add_streams, add_tokens,
                add_grpc_messages, add_lines, add_answers, add_watch, add_objects, add_repository,
                add_aggregated, add_components, add_cosi, add_maps, add_lists, add_images, add_rest):
        add(corpora)
    add_map_files(corpora, arguments.cbt)
    print("seeds:", ", ".join(f"{name} {count}" for name, count in sorted(corpora.counts.items())))


if __name__ == "__main__":
    main()
