"""`cbtctl backup`: with a service, with maps, with restic as the judge, in a directory and in S3."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import unittest

import support

BLOB = 1 << 20
PASSWORD = "the password of the test"
HERE = pathlib.Path(__file__).resolve().parent
SCALE = int(os.environ.get("CBT_TEST_SCALE", "1") or "1")
RESTIC = os.environ.get("CBT_TEST_RESTIC") or shutil.which("restic")
DOUBLE = HERE.parent / "bucket/s3_double.py"


def noise(size):
    return random.randbytes(size)


class Backup(support.CbtTest):
    def setUp(self):
        super().setUp()
        self.repo = self.path("repo")
        self.environment = {"RESTIC_REPOSITORY": self.repo, "RESTIC_PASSWORD": PASSWORD, "HOME": self.folder}
        os.mkdir(self.path("vol1"))
        self.image = bytearray(noise(3 * BLOB) + bytes(2 * BLOB) + noise(BLOB) + b"end")

    def snapshot(self, name):
        return self.write(f"vol1/{name}.img", bytes(self.image))

    def change(self, offset, data):
        self.image[offset : offset + len(data)] = data

    def backup(self, *arguments, code=0, **environment):
        done = support.run("backup", *arguments, env={**self.environment, **environment})
        self.assertEqual(done.code, code, f"{arguments}: {done}")
        self.assertNotIn(PASSWORD, done.stdout + done.stderr)
        return done

    def create(self, *arguments, code=0, **environment):
        """The summary of `backup create --json`, and what was said."""
        done = self.backup("create", "vol1", "--json", *arguments, code=code, **environment)
        summary = json.loads(done.stdout.splitlines()[-1]) if code == 0 else None
        return summary, done.stderr

    def restored(self, choice="vol1"):
        self.backup("restore", choice, "--to", self.path("restored"))
        return pathlib.Path(self.path("restored")).read_bytes()

    def restic(self, *arguments, **options):
        return subprocess.run([RESTIC, "--no-cache", "-q", *arguments], env={**os.environ, **self.environment},
                              check=True, capture_output=True, **options).stdout

    def serve(self):
        # A socket's path has an end: the temporary directory's may be long.
        socket = self.path("s")
        return self.start_server("log", "serve", "--root", self.folder, "--listen", f"unix://{socket}").address

    def test_increments_from_a_service(self):
        monday = self.snapshot("monday")
        address = self.serve()
        summary, said = self.create("--init", "--data", monday, "--from-service", address, "--snapshot", "vol1/monday")
        self.assertEqual(summary["tier"], "allocated")
        self.assertIn("no delta: the repository has no snapshot", said)
        first = bytes(self.image)

        self.change(BLOB + 7, b"x")
        self.change(3 * BLOB - 1, b"yz")
        tuesday = self.snapshot("tuesday")
        summary, said = self.create("--data", tuesday, "--from-service", address, "--snapshot", "vol1/tuesday",
                                    "--require-incremental", "--tag", "nightly")
        self.assertEqual((summary["tier"], summary["blobs_read"], said), ("delta", 3, ""))
        second = bytes(self.image)

        # The volume grows and shrinks.
        for day, size in (("wednesday", 8 * BLOB + 4096), ("thursday", 4 * BLOB + 512)):
            self.image = (self.image + noise(4 * BLOB))[:size]
            summary, _ = self.create("--data", self.snapshot(day), "--from-service", address, "--snapshot", f"vol1/{day}",
                                     "--require-incremental")
            self.assertEqual(summary["tier"], "delta")
            self.assertEqual(self.restored(), bytes(self.image))
        self.assertEqual(self.restored("vol1@vol1/monday"), first)
        self.assertEqual(self.restored("vol1@" + self.listed_ids()[1][:8]), second)
        self.assertEqual(self.backup("verify", "vol1", "--data", self.path("vol1/thursday.img")).stdout[:4], "yes:")
        differs = self.backup("verify", "vol1@vol1/monday", "--data", tuesday, code=1).stdout
        self.assertIn(f"byte_offset {BLOB}, ", differs)
        self.judge(second)

    def judge(self, second):
        if RESTIC is None:
            self.skipTest("restic is not installed")
        self.restic("check", "--read-data")
        ids = self.listed_ids()
        self.assertEqual(self.restic("dump", ids[1], "/vol1"), second)
        snapshots = json.loads(self.restic("snapshots", "--json", "--tag", "nightly"))
        self.assertEqual([one["id"] for one in snapshots], [ids[1]])
        self.assertEqual(snapshots[0]["parent"], ids[0])
        self.restic("forget", "--prune", ids[0])
        self.restic("check", "--read-data")
        self.assertEqual(self.restored("vol1@vol1/tuesday"), second)
        # What restic read from a pipe is a volume as well.
        self.restic("backup", "--stdin", "--stdin-filename", "vol2", input=second)
        self.backup("restore", "vol2", "--to", self.path("two"))
        self.assertEqual(pathlib.Path(self.path("two")).read_bytes(), second)

    def listed_ids(self):
        return [json.loads(line)["snapshot_id"] for line in self.backup("list", "vol1", "--json").stdout.splitlines()]

    def test_tutorial(self):
        """examples/backup/backup.sh, which docs/tutorials/backup-to-a-bucket.md shows."""
        self.snapshot("monday")
        self.change(BLOB, b"new")
        self.snapshot("tuesday")
        address = self.serve()
        os.mkdir(self.path("bin"))
        os.symlink(os.path.abspath(support.CBT), self.path("bin/cbtctl"))
        path = f"{self.path('bin')}:{os.environ['PATH']}"
        done = subprocess.run(["sh", HERE.parent.parent / "examples/backup/backup.sh", address, self.folder], check=False,
                              env={**os.environ, **self.environment, "PATH": path}, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout, r"snapshot [0-9a-f]{8} of vol1: allocated; read [46]\.0 MiB of 6\.0 MiB, stored ")
        self.assertRegex(done.stdout, r"snapshot [0-9a-f]{8} of vol1: delta, since [0-9a-f]{8}; read 1\.0 MiB of 6\.0 MiB")
        self.assertIn("yes: 7 of 7 blobs of ", done.stdout)

    def test_changes_from_a_map(self):
        monday = self.snapshot("monday")
        self.create("--init", "--data", monday, "--handle", "mon")
        self.change(5, b"abc")
        tuesday = self.snapshot("tuesday")
        cbm = self.path("tue.cbm")
        self.ok("delta", monday, tuesday, "--from", "image", "--output", cbm, "--base-name", "mon", "--target-name", "tue")
        summary, _ = self.create("--data", tuesday, "--delta", cbm, "--require-incremental")
        self.assertEqual((summary["handle"], summary["blobs_read"]), ("tue", 1))
        # Changes since another snapshot are none since this one.
        _, said = self.create("--data", tuesday, "--delta", cbm, "--require-incremental", code=1)
        self.assertIn("since mon, and not since tue", said)
        # A list that says no names, and two images.
        self.change(2 * BLOB, b"abc")
        wednesday = self.snapshot("wednesday")
        csv = self.path("wed.csv")
        pathlib.Path(csv).write_text(self.ok("delta", tuesday, wednesday, "--from", "image", "--format", "csv"))
        arguments = ("--data", wednesday, "--delta", csv, "--handle", "wed", "--require-incremental")
        _, said = self.create(*arguments, code=2)
        self.assertIn("--delta-base", said)
        summary, _ = self.create(*arguments, "--delta-base", "tue")
        self.assertEqual(summary["blobs_read"], 1)
        self.change(4 * BLOB, b"abc")
        thursday = self.snapshot("thursday")
        self.create("--data", thursday, "--delta", wednesday, thursday, "--delta-base", "wed", "--handle", "thu",
                    "--require-incremental")
        self.assertEqual(self.restored(), bytes(self.image))
        # A list that was cut is no list.
        lines = pathlib.Path(csv).read_text().splitlines()
        pathlib.Path(csv).write_text("\n".join(lines[:-1]) + "\n")
        self.create(*arguments, "--delta-base", "thu", code=2)

    def nbd(self, *arguments):
        """The URI of an export of qemu-nbd, which has one client."""
        if shutil.which("qemu-nbd") is None:
            self.skipTest("qemu-nbd is not installed")
        self.exports = getattr(self, "exports", 0) + 1
        socket = self.path(f"n{self.exports}")
        server = subprocess.Popen(["qemu-nbd", "-k", socket, *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        limit = time.monotonic() + 30
        # The socket is there before it takes connections, and a try might be the only one that is taken.
        while not re.search(rf" 00010000 .* {re.escape(socket)}$", pathlib.Path("/proc/net/unix").read_text(), re.MULTILINE):
            self.assertIsNone(server.poll())
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)
        return f"nbd+unix:///?socket={socket}"

    def test_data_over_nbd(self):
        self.image = self.image[: 6 * BLOB]
        monday = self.snapshot("monday")
        summary, said = self.create("--init", "--data", self.nbd("-r", "-f", "raw", monday), "--handle", "mon")
        self.assertEqual(summary["tier"], "allocated", said)
        self.assertIn(summary["blobs_read"], (4, 5, 6))  # zeros may be data
        self.assertEqual(self.restored(), bytes(self.image))
        self.change(BLOB, b"new")
        tuesday = self.snapshot("tuesday")
        cbm = self.path("tue.cbm")
        self.ok("delta", monday, tuesday, "--from", "image", "-o", cbm, "--base-name", "mon", "--target-name", "tue")
        summary, _ = self.create("--data", self.nbd("-r", "-f", "raw", tuesday), "--delta", cbm, "--require-incremental")
        self.assertEqual(summary["blobs_read"], 1)
        self.assertEqual(self.backup("verify", "vol1", "--data", self.nbd("-r", "-f", "raw", tuesday)).stdout[:4], "yes:")
        self.backup("verify", "vol1", "--data", self.nbd("-r", "-f", "raw", monday), code=1)
        # As an increment of qcow2.
        self.ok("export", cbm, "--from", "cbm", "--data", self.nbd("-r", "-f", "raw", tuesday), "--backing", monday,
                "--output", self.path("tue.qcow2"))
        self.ok("apply", monday, self.path("tue.qcow2"), self.path("applied"), "--from", "qcow2")
        self.assertEqual(pathlib.Path(self.path("applied")).read_bytes(), bytes(self.image))
        # Back into a qcow2 that has more room, whatever it held.
        target = self.path("target.qcow2")
        raw = self.write("noise", noise(7 * BLOB))
        subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, target], check=True)
        for arguments in ((), ("--onto",)):
            self.backup("restore", "vol1", "--to", self.nbd("-f", "qcow2", target), *arguments)
            subprocess.run(["qemu-img", "convert", "-f", "qcow2", "-O", "raw", target, self.path("out")], check=True)
            out = pathlib.Path(self.path("out")).read_bytes()
            self.assertEqual(out[: 6 * BLOB], bytes(self.image))
            self.assertEqual(out[6 * BLOB:], pathlib.Path(raw).read_bytes()[6 * BLOB:])
        self.assertIn("read-only", self.backup("restore", "vol1", "--to", self.nbd("-r", "-f", "raw", raw), code=2).stderr)
        small = self.write("small", bytes(5 * BLOB))
        self.assertIn("has 5242880 bytes, the volume 6291456",
                      self.backup("restore", "vol1", "--to", self.nbd("-f", "raw", small), code=2).stderr)
        self.backup("verify", "vol1", "--data", f"nbd+unix:///?socket={self.path('none')}", code=3)

    def certified(self, name, authority=None):
        """NAME-cert.pem and NAME-key.pem, signed by that authority or by itself."""
        signed = ["-CA", self.path(f"{authority}-cert.pem"), "-CAkey", self.path(f"{authority}-key.pem")] if authority else []
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", *signed,
                        "-keyout", self.path(f"{name}-key.pem"), "-out", self.path(f"{name}-cert.pem")],
                       check=True, capture_output=True)
        return self.path(f"{name}-cert.pem"), self.path(f"{name}-key.pem")

    def folder_of(self, name, authority, role=None):
        """A folder as libnbd and nbdkit want it."""
        folder = pathlib.Path(self.path(f"tls-{name}"))
        folder.mkdir()
        shutil.copy(self.path(f"{authority}-cert.pem"), folder / "ca-cert.pem")
        if role is not None:
            certificate, key = self.certified(name, authority)
            shutil.copy(certificate, folder / f"{role}-cert.pem")
            shutil.copy(key, folder / f"{role}-key.pem")
        return str(folder)

    def tls_server(self, image, *arguments):
        """The URI of an export of nbdkit over TLS."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        server = subprocess.Popen(["nbdkit", "-f", "-i", "127.0.0.1", "-p", str(port), "--tls=require", *arguments, "file", image],
                                  stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        limit = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return f"nbds://127.0.0.1:{port}/"
            except ConnectionRefusedError:
                self.assertIsNone(server.poll())
                self.assertLess(time.monotonic(), limit)
                time.sleep(0.01)

    def test_data_over_tls(self):
        for program in ("nbdkit", "openssl", "psktool"):
            if shutil.which(program) is None:
                self.skipTest(f"{program} is not installed")
        self.image = self.image[: 6 * BLOB]
        monday = self.snapshot("monday")
        for name in ("ca", "other"):
            self.certified(name)
        server, client = self.folder_of("server", "ca", "server"), self.folder_of("client", "ca", "client")
        bare, stranger = self.folder_of("bare", "ca"), self.folder_of("stranger", "other", "client")
        ours = ("--nbd-tls-certificates", client)
        uri = self.tls_server(monday, f"--tls-certificates={server}", "--tls-verify-peer")
        self.create("--init", "--data", uri, *ours, "--handle", "mon")
        self.assertEqual(self.restored(), bytes(self.image))
        self.backup("verify", "vol1", "--data", uri, *ours)
        # A server or a client that bare knows.
        for others in ((), ("--nbd-tls-certificates", bare), ("--nbd-tls-certificates", stranger),
                       ("--nbd-tls-certificates", self.path("none"))):
            self.create("--data", uri, *others, code=3)
        target = self.write("target", noise(6 * BLOB))
        self.backup("restore", "vol1", "--to", self.tls_server(target, f"--tls-certificates={server}"),
                    "--nbd-tls-certificates", bare)
        self.assertEqual(pathlib.Path(target).read_bytes(), bytes(self.image))
        # With keys that both sides have.
        keys = self.path("keys")
        subprocess.run(["psktool", "-u", "alice", "-p", keys], check=True, capture_output=True)
        self.change(BLOB, b"new")
        tuesday = self.snapshot("tuesday")
        uri = self.tls_server(tuesday, f"--tls-psk={keys}")
        alice = ("--nbd-tls-psk", keys, "--nbd-tls-username", "alice")
        self.ok("export", monday, tuesday, "--from", "image", "--data", uri, *alice, "--output", self.path("tue.qcow2"))
        self.ok("apply", monday, self.path("tue.qcow2"), self.path("applied"), "--from", "qcow2")
        self.assertEqual(pathlib.Path(self.path("applied")).read_bytes(), bytes(self.image))
        self.backup("verify", "vol1", "--data", uri, *alice, code=1)
        self.backup("verify", "vol1", "--data", uri, *alice[:3], "bob", code=3)
        # Options that would change nothing.
        for arguments in (("verify", "vol1", "--data", monday, *ours), ("verify", "vol1", "--data", uri[:3] + uri[4:], *ours),
                          ("restore", "vol1", "--to", self.path("new"), *alice), ("verify", "vol1", "--data", uri, *ours, *alice),
                          ("verify", "vol1", "--data", uri, *alice[2:])):
            self.backup(*arguments, code=2)

    def test_restores_of_what_changed(self):
        monday = self.snapshot("monday")
        self.create("--init", "--data", monday, "--handle", "mon")
        first = bytes(self.image)
        self.change(BLOB, b"new")
        tuesday = self.snapshot("tuesday")
        self.create("--data", tuesday, "--delta", monday, tuesday, "--delta-base", "mon", "--handle", "tue")
        target = self.path("target")

        def back(held, *arguments, code=0):
            pathlib.Path(target).write_bytes(held)
            done = self.backup("restore", "vol1@mon", "--to", target, "--onto", "--json", *arguments, code=code)
            found = pathlib.Path(target).read_bytes()
            if code:
                self.assertEqual(found, held)
                return done.stderr
            self.assertEqual(found, first)
            return json.loads(done.stdout.splitlines()[-1])

        # The target holds Tuesday: one blob differs from Monday's.
        done = back(self.image, "--since", "tue")
        self.assertEqual((done["total_bytes"], done["bytes_written"]), (BLOB, BLOB))
        self.assertEqual(back(first, "--since", "mon")["total_bytes"], 0)
        # It holds Tuesday and what a map says, and Monday and what two images differ in.
        now = bytearray(self.image)
        now[3 * BLOB : 3 * BLOB + 3] = b"now"
        later = self.write("now.img", now)
        cbm = self.path("now.cbm")
        self.ok("delta", tuesday, later, "--from", "image", "-o", cbm, "--base-name", "tue", "--target-name", "now")
        done = back(now, "--since", "tue", "--delta", cbm)
        self.assertEqual(done["total_bytes"], 2 * BLOB)
        done = back(now, "--delta", monday, later, "--delta-base", "mon")
        self.assertEqual(done["total_bytes"], 2 * BLOB)
        # From a service, as `vol1/now` is a snapshot of the target.
        os.rename(later, self.path("vol1/now.img"))
        self.create("--data", self.path("vol1/now.img"), "--handle", "vol1/now")
        address = self.serve()
        pathlib.Path(target).write_bytes(now)
        self.create("--data", monday, "--from-service", address, "--snapshot", "vol1/monday")
        done = self.backup("restore", "vol1@vol1/monday", "--to", target, "--onto", "--from-service", address,
                           "--snapshot", "vol1/now", "--json")
        self.assertEqual(json.loads(done.stdout.splitlines()[-1])["total_bytes"], 2 * BLOB)
        self.assertEqual(pathlib.Path(target).read_bytes(), first)
        # What can't be true is refused, and nothing is written.
        self.assertIn("since tue, and not since mon", back(now, "--delta", cbm, code=2))
        self.assertIn("something else", back(now + b"more", "--since", "tue", "--delta", cbm, code=2))
        self.assertIn("nothing was written", back(noise(len(first)), "--since", "tue", code=2))
        self.assertIn("no snapshot", back(now, "--since", "wed", code=2))
        cut = pathlib.Path(cbm).read_bytes()[:-1]
        back(now, "--since", "tue", "--delta", self.write("cut.cbm", cut), code=2)
        self.backup("restore", "vol1", "--to", target, "--since", "tue", code=2)  # without --onto

    def test_passwords(self):
        monday = self.snapshot("monday")
        self.create("--init", "--data", monday)
        file = self.path("password")
        pathlib.Path(file).write_text(f"{PASSWORD}\n")
        plain = dict(RESTIC_PASSWORD="")
        self.backup("list", "--password-file", file, **plain)
        self.backup("list", RESTIC_PASSWORD_FILE=file, **plain)
        self.backup("list", RESTIC_PASSWORD_COMMAND=f"cat '{file}'", **plain)
        self.backup("list", "--password-command", f"printf '%s' '{PASSWORD}'", **plain)
        name = self.path("name")
        pathlib.Path(name).write_text(self.repo + "\n")
        self.backup("list", "--repository-file", name, RESTIC_REPOSITORY="")
        self.assertIn("no password", self.backup("list", code=2, **plain).stderr)
        self.assertIn("it failed", self.backup("list", "--password-command", "false", code=2, **plain).stderr)
        wrong = self.backup("list", RESTIC_PASSWORD="hunter2", code=2).stderr
        self.assertIn("wrong password", wrong)
        self.assertNotIn("hunter2", wrong)
        self.assertIn("expected a directory", self.backup("list", RESTIC_REPOSITORY="", code=2).stderr)
        self.assertIn("expected a directory", self.backup("list", RESTIC_REPOSITORY="sftp:host:/x", code=2).stderr)
        self.assertIn("`restic init` makes one", self.backup("list", RESTIC_REPOSITORY=self.path("vol1"), code=2).stderr)

    def test_restores(self):
        self.image = bytearray(bytes(64 * BLOB))
        self.change(10 * BLOB, noise(BLOB))
        monday = self.snapshot("monday")
        self.create("--init", "--data", monday, "--handle", "mon")
        self.assertEqual(self.restored(), bytes(self.image))
        self.assertLess(os.stat(self.path("restored")).st_blocks * 512, 4 * BLOB)  # sparse
        self.assertEqual(stat.S_IMODE(os.stat(self.path("restored")).st_mode), 0o600)
        # In place: only what differs is written, and the size is the volume's.
        other = bytearray(self.image)
        other[20 * BLOB] = 1
        target = self.write("target", bytes(other) + b"longer")
        done = json.loads(self.backup("restore", "vol1", "--to", target, "--onto", "--json").stdout.splitlines()[-1])
        self.assertEqual((done["bytes_written"], done["bytes_fetched"]), (0, 0))  # a blob of zeros
        self.assertEqual(pathlib.Path(target).read_bytes(), bytes(self.image))
        for to in (self.folder, "-", self.path("none/file")):
            self.backup("restore", "vol1", "--to", to, code=2)
        self.backup("restore", "vol1", "--to", self.path("missing"), "--onto", code=2)
        self.assertIn("no snapshot", self.backup("restore", "vol1@0123", "--to", target, code=2).stderr)
        # A damaged pack leaves the file as it was.
        before = pathlib.Path(target).read_bytes()
        for pack in pathlib.Path(self.repo, "data").rglob("*"):
            if pack.is_file() and pack.stat().st_size > BLOB:
                pack.chmod(0o600)
                data = bytearray(pack.read_bytes())
                data[5000] ^= 1
                pack.write_bytes(data)
        self.assertIn("damaged or changed", self.backup("restore", "vol1", "--to", target, code=2).stderr)
        self.assertEqual(pathlib.Path(target).read_bytes(), before)
        self.assertEqual([name for name in os.listdir(self.folder) if "partial" in name], [])

    def test_another_volume_under_the_same_name(self):
        """Its delta starts at a handle of the same text, and leaves out what the parent has otherwise."""
        self.create("--init", "--data", self.snapshot("monday"), "--handle", "mon")
        self.image = bytearray(noise(len(self.image)))
        monday = self.write("other-monday.img", bytes(self.image))
        self.change(5, b"new")
        tuesday = self.write("other-tuesday.img", bytes(self.image))
        arguments = ("--data", tuesday, "--delta", monday, tuesday, "--delta-base", "mon", "--handle", "tue")
        _, said = self.create(*arguments, code=2)
        self.assertIn("a delta of another volume", said)
        self.assertEqual(len(self.backup("list", "--json").stdout.splitlines()), 1)

    def test_kills(self):
        """Killed at any time, a backup is finished by the next one. A thousand kills at CBT_TEST_SCALE=112."""
        environment = {**os.environ, **self.environment}
        for _ in range(SCALE):
            shutil.rmtree(self.repo, ignore_errors=True)
            self.create("--init", "--data", self.write("small", b"x" * 512), "--handle", "zero")
            self.image = bytearray(noise(60 * BLOB))
            monday = self.snapshot("monday")
            command = [support.CBT, "backup", "create", "vol1", "--data", monday, "--handle", "mon", "--quiet"]
            for number, kill in enumerate([signal.SIGKILL] * 6 + [signal.SIGTERM] * 3):
                process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
                time.sleep(random.uniform(0, 0.2 + 0.15 * number))
                process.send_signal(kill)
                code = process.wait()
                self.assertIn(code, (0, -kill))
            shutil.rmtree(os.path.join(self.repo, "locks"))
            os.mkdir(os.path.join(self.repo, "locks"))
            self.create("--data", monday, "--handle", "mon")
            self.assertEqual(os.listdir(os.path.join(self.repo, "locks")), [])
            self.assertEqual(self.restored(), bytes(self.image))
            if RESTIC is not None:
                self.restic("check", "--read-data")
        if RESTIC is None:
            self.skipTest("restic is not installed")

    def test_many_writers(self):
        """Eight volumes in one repository at a time, and half of the backups are killed."""
        self.create("--init", "--data", self.write("small", b"x" * 512), "--handle", "zero")
        environment = {**os.environ, **self.environment}
        failures = []
        rounds = 2 * SCALE

        def writer(number):
            dice = random.Random(number)
            name, image = f"w{number}", bytearray(dice.randbytes(5 * BLOB))
            path = self.path(f"{name}.img")
            for turn in range(rounds):
                place = dice.randrange(len(image) - 9)
                image[place : place + 9] = b"turn %04d" % turn
                pathlib.Path(path).write_bytes(image)
                command = [support.CBT, "backup", "create", name, "--data", path, "--handle", f"h{turn}", "-q"]
                while True:
                    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                    if dice.random() < 0.5:
                        time.sleep(dice.uniform(0, 0.6))
                        process.kill()
                    said = process.communicate()[1]
                    if process.returncode == 0:
                        break
                    if process.returncode != -signal.SIGKILL:
                        failures.append((name, turn, process.returncode, said))
                        return
            done = support.run("backup", "restore", name, "--to", path + ".out", env=self.environment)
            if done.code != 0 or pathlib.Path(path + ".out").read_bytes() != image:
                failures.append((name, "restore", done))

        threads = [threading.Thread(target=writer, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        listed = [json.loads(line) for line in self.backup("list", "--json").stdout.splitlines()]
        for number in range(8):
            handles = [one["handle"] for one in listed if one["volume"] == f"w{number}"]
            # A backup that was killed after its snapshot is made once more.
            self.assertEqual(sorted(set(handles)), sorted(f"h{turn}" for turn in range(rounds)))
        if RESTIC is None:
            self.skipTest("restic is not installed")
        self.restic("unlock", "--remove-all")
        self.restic("check", "--read-data")

    def test_a_bucket(self):
        double = subprocess.Popen([sys.executable, "-B", DOUBLE, "AKTEST", "secret", "token", "bucket", "7"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(double.stdout.close)
        self.addCleanup(double.stdin.close)
        self.addCleanup(double.wait)
        self.addCleanup(double.kill)
        port = double.stdout.readline().strip()
        self.environment.update(RESTIC_REPOSITORY=f"s3:http://127.0.0.1:{port}/bucket/backups", AWS_ACCESS_KEY_ID="AKTEST",
                                AWS_SECRET_ACCESS_KEY="secret", AWS_SESSION_TOKEN="token")
        self.create("--init", "--data", self.snapshot("monday"), "--handle", "mon")
        self.change(BLOB, b"new")
        tuesday = self.snapshot("tuesday")
        for fault in ("fault slowdown PUT 2", "fault internal GET 2"):
            double.stdin.write(fault + "\n")
            double.stdin.flush()
            double.stdout.readline()
        summary, _ = self.create("--data", tuesday, "--delta", self.path("vol1/monday.img"), tuesday, "--delta-base", "mon",
                                 "--handle", "tue", "--require-incremental")
        self.assertEqual(summary["blobs_read"], 1)
        self.assertEqual(self.restored(), bytes(self.image))
        refused = self.backup("list", AWS_SECRET_ACCESS_KEY="another", code=2).stderr
        self.assertNotIn("another", refused)


if __name__ == "__main__":
    support.main()
