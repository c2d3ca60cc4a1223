"""Runs a program to its end, as subprocess.run() does, but loads it only once (warm/warm_start.cc).

CBT_WARM_START names the preloaded library; without it, and for what it can't do, each run starts
the program anew.
"""

import array
import atexit
import os
import selectors
import signal
import socket
import subprocess
import threading
import time

LIBRARY = os.environ.get("CBT_WARM_START")
# The request is one packet, and a socket takes no longer ones.
MAX_REQUEST = 100_000


class Warm:
    """A program that stands before main(), in the environment in which its libraries were loaded."""

    def __init__(self, program, environment):
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        preloaded = " ".join(filter(None, (environment.get("LD_PRELOAD"), LIBRARY)))
        self.process = subprocess.Popen(
            [program], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            env=dict(environment, LD_PRELOAD=preloaded, CBT_WARM_SOCKET=str(theirs.fileno())))
        theirs.close()

    def number(self):
        return array.array("i", self.socket.recv(4))[0]

    def start(self, request, streams):
        """The process id of a copy whose standard streams are these."""
        self.socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))])
        return self.number()

    def close(self):
        self.socket.close()
        self.process.wait()


idle = {}
lock = threading.Lock()


def take(program, environment):
    key = (program, *sorted(environment.items()))
    with lock:
        waiting = idle.setdefault(key, [])
        return key, waiting.pop() if waiting else Warm(program, environment)


@atexit.register
def end():
    for waiting in idle.values():
        while waiting:
            waiting.pop().close()


def request_of(command, cwd, env):
    texts = [str(len(command)), os.path.abspath(cwd or "."), *command, *(f"{k}={v}" for k, v in env.items())]
    return b"".join(os.fsencode(text) + b"\0" for text in texts)


def read_all(pipes, until):
    """What comes from each pipe to its end; None if the time was up before."""
    found = {pipe: [] for pipe in pipes}
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(None if until is None else max(0, until - time.monotonic()))
            if not ready and until is not None and time.monotonic() >= until:
                return None
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                if data:
                    found[key.fd].append(data)
                else:
                    selector.unregister(key.fd)
    return [b"".join(found[pipe]) for pipe in pipes]


def run(command, *, env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        timeout=None, cwd=None, loaded_with=(), **options):
    """subprocess.run() of `command`. `loaded_with`: names in `env` that the program's libraries read
    before main(); a change of any other one is seen by the next run.
    """
    command = [os.fspath(part) for part in command]
    request = request_of(command, cwd, env) if LIBRARY else b""
    if not LIBRARY or options or len(request) > MAX_REQUEST or not os.path.isabs(command[0]):
        return subprocess.run(command, env=env, stdin=stdin, stdout=stdout, stderr=stderr,
                              timeout=timeout, cwd=cwd, **options)
    loader = {name: value for name, value in env.items()
              if name.startswith(("LD_", "MALLOC_", "GLIBC_")) or name in loaded_with}
    key, warm = take(command[0], loader)
    opened, pipes, given = [], {}, []
    try:
        for name, wanted in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
            if wanted == subprocess.PIPE:
                pipes[name], wanted = os.pipe()
                opened.append(wanted)
            elif wanted == subprocess.DEVNULL:
                wanted = os.open(os.devnull, os.O_RDWR)
                opened.append(wanted)
            given.append(wanted if isinstance(wanted, int) else wanted.fileno())
        process = warm.start(request, given)
        while opened:
            os.close(opened.pop())
        until = None if timeout is None else time.monotonic() + timeout
        said = read_all(list(pipes.values()), until)
        warm.socket.settimeout(None if until is None else max(0.001, until - time.monotonic()))
        try:
            if said is None:
                raise TimeoutError
            status = warm.number()
        except TimeoutError:
            os.kill(process, signal.SIGKILL)
            warm.socket.settimeout(None)
            warm.number()
            raise subprocess.TimeoutExpired(command, timeout) from None
        finally:
            warm.socket.settimeout(None)
    finally:
        for descriptor in (*opened, *pipes.values()):
            os.close(descriptor)
    with lock:
        idle[key].append(warm)
    output = dict(zip(pipes, said))
    return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status),
                                       output.get("stdout"), output.get("stderr"))
