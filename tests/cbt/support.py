"""Runs the cbt command in tests."""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import runner  # pylint: disable=wrong-import-position
import warm  # pylint: disable=wrong-import-position

CBT = None  # path of the command, from the command line


class Result:
    def __init__(self, code, stdout, stderr):
        self.code, self.stdout, self.stderr = code, stdout, stderr

    def __repr__(self):
        return f"exit {self.code}, stdout {self.stdout[:400]!r}, stderr {self.stderr[:400]!r}"


def run(*arguments, env=None, timeout=60, **options):
    """Runs `cbt` with the arguments to completion, in the locale C unless `env` says otherwise. A
    client does not wait for an unreachable service, unless the arguments set a time.
    """
    if arguments[:1] == ("list",) and "--retry-for" not in arguments:
        arguments = (*arguments, "--retry-for", "0")
    environment = dict(os.environ, LC_ALL="C")
    environment.pop("CBT_SIMD", None)
    environment.update(env or {})
    done = warm.run([CBT, *map(str, arguments)], env=environment, timeout=timeout, **options)
    stdout = None if done.stdout is None else done.stdout.decode()
    return Result(done.returncode, stdout or "", done.stderr.decode(errors="replace"))


def check_marker(marker, found):
    """Checks the numbers of an end marker (docs/reference/answers.md)."""
    assert set(marker) - {"starting_offset", "ending_offset"} == {"complete", "tuples", "bytes", "digest"}, marker
    assert marker["complete"] is True, marker
    assert (marker["tuples"], marker["bytes"]) == (len(found), sum(size for _, size in found)), marker
    assert re.fullmatch("xxh3-64:[0-9a-f]{16}", marker["digest"]), marker


def without_source(text):
    """An ndjson stream whose head does not say what the answer is about."""
    return re.sub(r',"(base|snapshot|source_version)":"[^"]*"', "", text)


def parse_ndjson(text):
    """(type, capacity, tuples) of a complete ndjson stream."""
    assert text.endswith("\n"), text[-100:]
    lines = text.splitlines()
    header = json.loads(lines[0])
    assert set(header) - {"base", "snapshot", "source_version"} == {"block_metadata_type", "volume_capacity_bytes"}, header
    found = []
    for line in lines[1:-1]:
        entry = json.loads(line)
        assert set(entry) == {"byte_offset", "size_bytes"}, entry
        found.append((entry["byte_offset"], entry["size_bytes"]))
    check_marker(json.loads(lines[-1]), found)
    return header["block_metadata_type"], header["volume_capacity_bytes"], found


def parse_json(text):
    """The same for json: one object, or one per line for groups; also the sizes of the groups."""
    found, groups, heads = [], [], set()
    lines = text.splitlines()
    for number, line in enumerate(lines):
        message = json.loads(line)
        heads.add((message.pop("block_metadata_type"), message.pop("volume_capacity_bytes"),
                   *(message.pop(key, None) for key in ("base", "snapshot", "source_version"))))
        entries = [(t["byte_offset"], t["size_bytes"]) for t in message.pop("block_metadata")]
        found += entries
        groups.append(len(entries))
        if number == len(lines) - 1:
            check_marker(message, found)
        else:
            assert not message, message
    assert len(heads) == 1, heads
    kind, capacity, *_ = heads.pop()
    return kind, capacity, found, groups


def plain(text):
    """An answer without what its head says about its source: base, snapshot and source_version."""
    text = re.sub(r',"(?:base|snapshot|source_version)":"[^"]*"', "", text)
    return re.sub(r"(?m)^(?:base|snapshot|source_version),.*\n", "", text)


def own(stderr):
    """The program's own messages: a coverage build also complains where it cannot write."""
    return re.sub(r"(?m)^LLVM Profile Error: .*\n", "", stderr)


def parse_csv(text):
    assert text.endswith("\n"), text[-100:]
    lines = text.splitlines()
    assert lines[0] == "byte_offset,size_bytes", lines[0]
    while lines[1].split(",")[0] in ("capacity", "base", "snapshot", "source_version"):
        del lines[1]
    while lines[-2].split(",")[0] in ("starting_offset", "ending_offset"):
        del lines[-2]
    assert lines[-1] == f"complete,{len(lines) - 2}", lines[-1]
    return [tuple(map(int, line.split(","))) for line in lines[1:-1]]


class CbtTest(unittest.TestCase):
    """A test with a private folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="cbt-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        """Writes a file, leaving random runs of zero pages as holes."""
        path = self.path(name)
        with open(path, "wb") as file:
            file.truncate(len(data))
            for begin in range(0, len(data), 4096):
                page = data[begin : begin + 4096]
                if page.strip(b"\0") or random.random() < 0.3:
                    file.seek(begin)
                    file.write(page)
        return path

    def listed(self, *command):
        """What `cbt list` prints, without the names of its source, for comparison with files."""
        return plain(self.ok("list", *command))

    def start_server(self, log, *command, stdout=subprocess.DEVNULL, **popen):
        """Starts this `cbt` command and returns it with the address that it reports by --ready-
        fd.
        """
        reader, writer = os.pipe()
        with open(self.path(log), "ab") as file:
            server = subprocess.Popen(
                [CBT, *map(str, command), "--ready-fd", str(writer)], pass_fds=[writer],
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=file, **popen)
        os.close(writer)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        with os.fdopen(reader) as file:
            server.address = file.read().rstrip("\n")
        if not server.address:
            with open(self.path(log), encoding="utf-8", errors="replace") as file:
                self.fail(f"cbt {command}: not up, exit {server.poll()}: {file.read()}")
        return server

    def ok(self, *arguments, **options):
        result = run(*arguments, **options)
        self.assertEqual(result.code, 0, f"cbt {arguments}: {result}")
        self.assertEqual(result.stderr, "", f"cbt {arguments}: {result}")
        return result.stdout

    def fails(self, code, *arguments, **options):
        """Checks the exit status, one line on stderr and nothing on stdout; returns the line."""
        result = run(*arguments, **options)
        self.assertEqual(result.code, code, f"cbt {arguments}: {result}")
        self.assertEqual(result.stdout, "", f"cbt {arguments}: {result}")
        stderr = own(result.stderr)
        self.assertRegex(stderr, r"\Acbt: [^\n]+: [^\n]+\n\Z", f"cbt {arguments}: {result}")
        return stderr


def main():
    """Runs the tests of the calling file: <file> CBT [unittest arguments]."""
    global CBT
    CBT = os.path.abspath(sys.argv.pop(1))
    seed = int(os.environ.get("CBT_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"CBT_TEST_SEED={seed} repeats this run", file=sys.stderr)
    random.seed(seed)
    unittest.main(module="__main__", testRunner=runner.Runner)
