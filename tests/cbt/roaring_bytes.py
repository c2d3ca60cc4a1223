"""Handmade roaring bytes, and sets of blocks to put into them."""

import random
import struct


def roaring32(blocks, use_runs):
    """Portable 32-bit roaring bytes, written the obvious way."""
    containers = {}
    for block in sorted(blocks):
        containers.setdefault(block >> 16, []).append(block & 0xFFFF)
    keys = sorted(containers)
    bodies, flags, descriptors = [], bytearray((len(keys) + 7) // 8), b""
    for index, key in enumerate(keys):
        values = containers[key]
        runs = []
        for value in values:
            if runs and runs[-1][0] + runs[-1][1] + 1 == value:
                runs[-1][1] += 1
            else:
                runs.append([value, 0])
        descriptors += struct.pack("<HH", key, len(values) - 1)
        if use_runs and random.random() < 0.7:
            flags[index // 8] |= 1 << index % 8
            bodies.append(struct.pack("<H", len(runs)) + b"".join(struct.pack("<HH", *r) for r in runs))
        elif len(values) <= 4096:
            bodies.append(struct.pack(f"<{len(values)}H", *values))
        else:
            bits = bytearray(8192)
            for value in values:
                bits[value // 8] |= 1 << value % 8
            bodies.append(bytes(bits))
    any_runs = any(flags)
    if any_runs:
        head = struct.pack("<I", 12347 | (len(keys) - 1) << 16) + bytes(flags)
    else:
        head = struct.pack("<II", 12346, len(keys))
    head += descriptors
    if not any_runs or len(keys) >= 4:
        at = len(head) + 4 * len(keys)
        for body in bodies:
            head += struct.pack("<I", at)
            at += len(body)
    return head + b"".join(bodies)


def read_roaring32(data):
    """The blocks of portable 32-bit roaring bytes."""
    cookie = struct.unpack_from("<I", data)[0]
    runs = cookie & 0xFFFF == 12347
    count = (cookie >> 16) + 1 if runs else struct.unpack_from("<I", data, 4)[0]
    at = 4 if runs else 8
    flags = data[at : at + (count + 7) // 8] if runs else bytes(count)
    at += (count + 7) // 8 if runs else 0
    descriptors = struct.unpack_from(f"<{2 * count}H", data, at)
    at += 4 * count
    if not runs or count >= 4:
        at += 4 * count
    blocks = []
    for index in range(count):
        base, cardinality = descriptors[2 * index] << 16, descriptors[2 * index + 1] + 1
        if runs and flags[index // 8] >> index % 8 & 1:
            number = struct.unpack_from("<H", data, at)[0]
            pairs = struct.unpack_from(f"<{2 * number}H", data, at + 2)
            for first, more in zip(pairs[::2], pairs[1::2]):
                blocks += range(base + first, base + first + more + 1)
            at += 2 + 4 * number
        elif cardinality <= 4096:
            blocks += [base + v for v in struct.unpack_from(f"<{cardinality}H", data, at)]
            at += 2 * cardinality
        else:
            bits = int.from_bytes(data[at : at + 8192], "little")
            blocks += [base + v for v in range(65536) if bits >> v & 1]
            at += 8192
    assert at == len(data)
    return blocks


def random_blocks(end):
    blocks = set()
    for _ in range(random.randrange(8)):
        first = random.choice([random.randrange(end), 65530, 65536, 2 * 65536 - 3])
        length = random.choice([1, 2, 10, 700, 5000, 66000])
        step = random.choice([1, 1, 2, 7])
        blocks.update(b for b in range(first, first + length * step, step) if b < end)
    return sorted(blocks)
