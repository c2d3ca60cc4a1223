"""Mixed load on `cbtctl serve` and `cbtctl relay` for any length of time: clients that stall, are killed,
cancel, time out and resume; plugins that are killed, stopped and drained below a relay. Every
answer must be exact, and memory and descriptors must stay flat.

soak.py CBT FOLDER_OF_CSI_PB2 [--seconds N] [--output FOLDER] [--seed N]
"""

import argparse
import collections
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
ARGUMENTS = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
ARGUMENTS.add_argument("cbt")
ARGUMENTS.add_argument("messages")
ARGUMENTS.add_argument("--seconds", type=float, default=3600)
ARGUMENTS.add_argument("--output", default="build/soak")
ARGUMENTS.add_argument("--seed", type=int, default=1)
ARGUMENTS.add_argument("--clients", type=int, default=10)
ARGUMENTS.add_argument("--processor", type=float, default=0.45,
                       help="average number of processors used by clients and servers together")
OPTIONS = ARGUMENTS.parse_args()
sys.path.insert(0, OPTIONS.messages)

# pylint: disable=wrong-import-position
import clients  # noqa: E402
import report  # noqa: E402
import servers  # noqa: E402
import snapshots  # noqa: E402

# Memory is judged in lives of at least this length, from their first fifth on.
JUDGED_SECONDS = 300
WARM_UP = 0.2
KEEPALIVE_SECONDS = 90  # by then a server has noticed every lost connection
FLAT_PERCENT, FLAT_KIB = 5, 2048
MANNERS = [
    ("grpcio", "whole", 6), ("grpcio", "slow", 2), ("grpcio", "pause", 2), ("grpcio", "stall", 1),
    ("grpcio", "cancel", 3), ("grpcio", "deadline", 3), ("list", "whole", 4), ("list", "pause", 1),
    ("list", "kill", 2), ("list", "stall", 0.5), ("socket", "vanish", 4), ("socket", "reset", 2),
    ("socket", "silent", 0.5)]


class Soak:
    def __init__(self):
        self.cbt = os.path.abspath(OPTIONS.cbt)
        self.random = random.Random(OPTIONS.seed)
        self.long = OPTIONS.seconds >= 120
        self.stall_time = 15 if self.long else 1
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.ends = collections.Counter()
        self.wrong = []
        self.samples = []
        self.stopping = threading.Event()
        self.gate = threading.Condition()
        self.closed = False  # the gate: no new client may begin
        self.running = 0
        self.calm = threading.Lock()  # held while a plugin is being disturbed, or must not be

    def count(self, name, by=1):
        with self.lock:
            self.counts[name] += by

    def ended(self, server, way, how, why):
        with self.lock:
            self.ends[server, way, how, why or "OK"] += 1

    def fail(self, text):
        with self.lock:
            self.wrong.append(text)
        print(f"soak: wrong: {time.strftime('%H:%M:%S')}: {text}", file=sys.stderr, flush=True)

    def wait(self, seconds):
        """A client action that does nothing."""
        self.stopping.wait(seconds)

    # The servers.

    def start(self, folder):
        self.folder = folder
        self.root = os.path.join(folder, "root")
        os.makedirs(self.root)
        self.data = snapshots.Folder(self.cbt, self.root, OPTIONS.seed, 1 if self.long else 0.4)
        volumes = sorted({question[0] for question in self.data.questions})
        token = self.token()
        self.file("tokens", f"{token} operator *\n")
        self.file("token", token + "\n")
        sessions = []
        for volume in volumes:
            names = {n for v, b, t, _ in self.data.questions if v == volume for n in (b, t) if n}
            session = self.token()
            sessions.append(f"{session} {volume} {','.join(sorted(names))} -\n")
            self.file(f"session-{volume}", session + "\n")
        self.file("sessions", "".join(sessions))
        self.servers = []
        for kind, style, block in (("extents", "extents", 4096), ("blocks", "blocks", 16384)):
            shape = ["--style", style, "--block-size", block]
            plugin = self.server("serve", kind, (style, block), "csi,paged", "--root", self.root,
                                 *shape, "--max-streams", 64)
            relay = self.server(
                "relay", kind, (style, block), "csi,kubernetes,session,paged", "--plugin",
                plugin.address, "--max-streams", 64, "--tokens", self.path("tokens"), "--sessions",
                self.path("sessions"))
            # Only one of the plugins is disturbed, so that the other grows old.
            plugin.mortal = relay.mortal = kind == "extents"
            self.servers += [plugin, relay]
        self.plugin = self.servers[0]
        # Two lists from each: now they hold what they keep, such as a relay's connection.
        for server in self.servers * 2:
            self.look(server)
        for server in self.servers:
            servers.settle(lambda s=server: s.descriptors() == self.least(s), 5)
            server.idle = self.least(server)

    def server(self, command, kind, shape, apis, *options):
        name = f"{command}_{kind}"
        # One is reached over TCP, the others through Unix sockets.
        listen = "127.0.0.1:0" if name == "relay_blocks" else f"unix://{self.path(name + '.sock')}"
        return servers.Server(name, self.folder, shape, [
            self.cbt, command, "--listen", listen, "--api", apis, "--stall-time", self.stall_time,
            "--grace", 0.5, "--log-level", "info", "--log-file",
            os.path.join(OPTIONS.output, name + ".log"), *options])

    @staticmethod
    def least(server, looks=10):
        """The lowest of several counts of descriptors: a scrape of the metrics has one, too."""
        found = []
        for _ in range(looks):
            found.append(server.descriptors())
            time.sleep(0.02)
        return min(found)

    def look(self, server):
        subprocess.run([self.cbt, "list", server.address, "--snapshot", "raw/s0"], check=True,
                       stdout=subprocess.DEVNULL)

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def token(self):
        done = subprocess.run([self.cbt, "token"], stdout=subprocess.PIPE, check=True)
        return done.stdout.decode().strip()

    def names(self, client):
        """The options of `cbtctl list` for a client's request."""
        base, target = client.base, client.target
        if client.api in ("csi", "paged"):
            target = f"{client.volume}/{target}"
        if client.api != "session" and base:
            base = f"{client.volume}/{base}"
        options = ["--snapshot", target] + (["--base", base] if base else [])
        if client.api == "kubernetes":
            options += ["--namespace", client.volume, "--token-file", self.path("token")]
        if client.api == "session":
            options += ["--token-file", self.path(f"session-{client.volume}")]
        return options

    # The clients.

    def processor(self):
        """Processor seconds of all our processes."""
        used = os.times()
        return (used.user + used.system + used.children_user + used.children_system +
                sum(server.processor() for server in self.servers))

    def affordable(self):
        spent = self.processor() - self.spent_before
        return spent < OPTIONS.processor * (time.monotonic() - self.began) + 1

    def enter(self, channels):
        """Waits until another client may begin; false at the end."""
        while not self.stopping.is_set():
            if self.closed:
                # A client that waits at the gate has no connections.
                channels.close()
            with self.gate:
                if not self.closed and self.affordable():
                    self.running += 1
                    return True
            self.stopping.wait(0.05)
        return False

    def leave(self):
        with self.gate:
            self.running -= 1

    def client(self, rng, channels):
        server = rng.choice(self.servers)
        way, how = rng.choices([m[:2] for m in MANNERS], [m[2] for m in MANNERS])[0]
        questions = self.data.questions
        if how != "whole" and rng.random() < 0.6:
            # Long enough to be interrupted.
            questions = [q for q in questions if len(q[3].ranges) > 5000]
        api = "csi"
        if way == "list":
            api = rng.choice(["csi", "paged"] if server.name.startswith("serve") else
                             ["csi", "kubernetes", "session", "paged"])
        question = rng.choice(questions)
        answer = question[3]
        start = rng.choice([0, 0, answer.capacity, rng.randrange(answer.capacity),
                            rng.randrange(answer.capacity)])
        clients.Client(self, rng, channels, server, api, question, start).run((way, how))

    def work(self, number):
        rng = random.Random(OPTIONS.seed * 1000 + number)
        channels = clients.Channels()
        while self.enter(channels):
            try:
                self.client(rng, channels)
            except clients.Wrong as error:
                self.fail(str(error))
            except Exception:  # pylint: disable=broad-except
                self.fail(traceback.format_exc())
            finally:
                if self.closed or rng.random() < 0.3:
                    channels.close()
                self.leave()
        channels.close()

    # What happens to plugins, and to clients that depend on them.

    def suffer(self):
        rng = random.Random(OPTIONS.seed * 1000 + 999)
        plugin = self.plugin
        while not self.stopping.wait(rng.uniform(20, 60) if self.long else rng.uniform(0.8, 2)):
            with self.calm:
                if self.stopping.is_set():
                    return
                how = rng.choice(["kill", "kill", "drain", "drain", "stop"])
                try:
                    if how == "stop":
                        plugin.process.send_signal(signal.SIGSTOP)
                        self.stopping.wait(rng.uniform(0.1, self.stall_time / 2))
                        plugin.process.send_signal(signal.SIGCONT)
                        continue
                    status = plugin.stop(signal.SIGKILL if how == "kill" else signal.SIGTERM)
                    if status != (-signal.SIGKILL if how == "kill" else 0):
                        self.fail(f"{plugin.name} ended with {status} after a {how}")
                    self.stopping.wait(rng.uniform(0, 1))
                    plugin.start()
                    self.count("restarts")
                    self.count("kills", how == "kill")
                except Exception:  # pylint: disable=broad-except
                    self.fail(traceback.format_exc())
                    return

    # What is checked.

    def sample(self):
        with open(os.path.join(OPTIONS.output, "samples.csv"), "w", encoding="ascii") as csv:
            csv.write("seconds,server,pid,rss_kib,descriptors,clients\n")
            while not self.stopping.wait(1 if self.long else 0.1):
                now = time.monotonic() - self.began
                for server in self.servers:
                    pid, resident, descriptors = server.pid, server.resident(), server.descriptors()
                    if resident is None or descriptors is None:
                        continue
                    self.samples.append((now, server.name, pid, resident))
                    csv.write(f"{now:.1f},{server.name},{pid},{resident},{descriptors},"
                              f"{self.running}\n")
                csv.flush()

    def quiet(self):
        """Lets all clients finish: then no stream may be open, and no extra descriptor."""
        with self.gate:
            self.closed = True
        with self.calm:
            if not servers.settle(lambda: self.running == 0, clients.LONGEST):
                self.fail(f"{self.running} clients do not finish")
            self.now, self.slots = {}, 0
            for server in self.servers:
                servers.settle(lambda s=server: s.streams() == 0, self.stall_time + 10)
                slots = server.streams()
                servers.settle(lambda s=server: self.least(s, 3) <= s.idle, KEEPALIVE_SECONDS)
                self.now[server.name] = self.least(server)
                self.slots += slots
                if slots or self.now[server.name] > server.idle:
                    self.fail(f"{server.name}: without clients {slots} streams are open, "
                              f"{self.now[server.name]} descriptors, were {server.idle}")
            self.count("quiet")
        with self.gate:
            self.closed = False

    def judge(self):
        """The memory of each server's longest life: medians of its first and last quarter."""
        for server in self.servers:
            lives = collections.defaultdict(list)
            for now, name, pid, resident in self.samples:
                if name == server.name:
                    lives[pid].append((now, resident))
            longest = max(lives.values(), key=lambda life: life[-1][0] - life[0][0])
            length = longest[-1][0] - longest[0][0]
            warm = [kib for now, kib in longest if now >= longest[0][0] + WARM_UP * length]
            quarter = max(len(warm) // 4, 1)
            first = int(statistics.median(warm[:quarter]))
            last = int(statistics.median(warm[-quarter:]))
            report.figure(f"soak_rss_first_kib_{server.name}", first)
            report.figure(f"soak_rss_last_kib_{server.name}", last)
            report.figure(f"soak_rss_life_seconds_{server.name}", int(length))
            report.figure(f"soak_descriptors_idle_{server.name}", server.idle)
            report.figure(f"soak_descriptors_now_{server.name}", self.now[server.name])
            flat = max(FLAT_KIB, first * FLAT_PERCENT / 100)
            if length >= JUDGED_SECONDS and last - first > flat:
                self.fail(f"{server.name}: memory grew from {first} to {last} KiB")

    def run(self):
        self.spent_before = 0
        self.began = time.monotonic()
        self.spent_before = self.processor()
        threads = [threading.Thread(target=self.work, args=[n], daemon=True)
                   for n in range(OPTIONS.clients)]
        threads += [threading.Thread(target=act, daemon=True) for act in (self.suffer, self.sample)]
        for thread in threads:
            thread.start()
        end = self.began + OPTIONS.seconds
        every = 90 if self.long else OPTIONS.seconds / 2.5
        while time.monotonic() + every < end:
            time.sleep(every)
            self.quiet()
        time.sleep(max(end - time.monotonic(), 0))
        self.quiet()
        self.stopping.set()
        for thread in threads:
            thread.join()
        spent = (self.processor() - self.spent_before) / (time.monotonic() - self.began)
        self.judge()
        for server in reversed(self.servers):
            status = server.stop()
            if status != 0:
                self.fail(f"{server.name} ended with {status}")
        self.report(spent)

    def report(self, spent):
        with open(os.path.join(OPTIONS.output, "ends.csv"), "w", encoding="ascii") as file:
            file.write("server,way,manner,end,count\n")
            for row, count in sorted(self.ends.items()):
                file.write(",".join(row) + f",{count}\n")
        if not self.counts["ok"] or not self.counts["interrupted"] or not self.counts["restarts"]:
            self.fail(f"nothing was tried: {dict(self.counts)}")
        report.figure("soak_seconds", int(time.monotonic() - self.began))
        report.figure("soak_processor_percent", int(100 * spent))
        for name in ("streams", "ok", "interrupted", "resumed", "late", "kills", "restarts",
                     "quiet"):
            report.figure(f"soak_{name}", self.counts[name])
        report.figure("soak_slots_left", self.slots)
        report.figure("soak_wrong", len(self.wrong))


def main():
    os.makedirs(OPTIONS.output, exist_ok=True)
    for name in os.listdir(OPTIONS.output):
        if name.endswith((".log", ".csv")):
            os.unlink(os.path.join(OPTIONS.output, name))
    print(f"soak: seed {OPTIONS.seed}, {OPTIONS.seconds:g} seconds", flush=True)
    # So that an interrupted run leaves no process behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
    soak = Soak()
    folder = tempfile.mkdtemp(prefix="cbt-soak-")
    try:
        soak.start(folder)
        soak.run()
    finally:
        soak.stopping.set()
        for server in getattr(soak, "servers", []):
            server.process.kill()
            server.process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if soak.wrong else 0)


if __name__ == "__main__":
    main()
