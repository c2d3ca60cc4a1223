"""The kernel's NBD client, played in a mount namespace: /dev/nbdN, /sys/block/nbdN and the program
nbd-client, above nbdfuse and loop devices. Not a test.

    played_nbd.py FOLDER [nbd-client's arguments]

is nbd-client itself. FOLDER holds `mode`, how it behaves.
"""

import ctypes
import json
import os
import shutil
import stat
import subprocess
import sys
import time

BLOCK = "/sys/block"
LOOPS = 64
CLONE_NEWNS = 0x20000


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def read(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


class Player:
    """Enters a mount namespace for the rest of the process, with `count` unconnected devices."""

    def __init__(self, folder, count=4):
        self.folder = folder
        self.count = count
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        run("mount", "--make-rprivate", "/")
        self.play_devices()
        self.play_sysfs()
        program = os.path.join(folder, "bin", "nbd-client")
        os.makedirs(os.path.dirname(program))
        write(program, f"#!/bin/sh\nexec {sys.executable} {os.path.abspath(__file__)} {folder} "
                       '"$@"\n')
        os.chmod(program, 0o755)
        os.environ["PATH"] = os.path.dirname(program) + ":" + os.environ["PATH"]
        self.mode()

    def play_devices(self):
        staging = os.path.join(self.folder, "dev")
        os.mkdir(staging)
        run("mount", "-t", "tmpfs", "none", staging)
        for name in os.listdir("/dev"):
            if name.startswith("nbd"):
                continue
            path, copy = os.path.join("/dev", name), os.path.join(staging, name)
            found = os.lstat(path)
            if stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode):
                os.mknod(copy, found.st_mode, found.st_rdev)
            elif stat.S_ISLNK(found.st_mode):
                os.symlink(os.readlink(path), copy)
            elif stat.S_ISDIR(found.st_mode):
                os.mkdir(copy)
        for number in range(LOOPS):
            if not os.path.exists(f"{staging}/loop{number}"):
                os.mknod(f"{staging}/loop{number}", stat.S_IFBLK | 0o600, os.makedev(7, number))
        run("mount", "--move", staging, "/dev")

    def play_sysfs(self):
        names = {name: os.readlink(os.path.join(BLOCK, name)) for name in os.listdir(BLOCK)
                 if not name.startswith("nbd")}
        names.update({f"loop{number}": f"../devices/virtual/block/loop{number}"
                      for number in range(LOOPS)})
        run("mount", "-t", "tmpfs", "none", BLOCK)
        for name, target in names.items():
            os.symlink(target, os.path.join(BLOCK, name))
        for number in range(self.count):
            os.mkdir(f"{BLOCK}/nbd{number}")
            clear(f"/dev/nbd{number}")

    def mode(self, **how):
        """`identifiers`: nbd-client knows -i; `keeps`: so does the kernel; `delay`: seconds before
        it connects; `taken`: devices that another program connects just before."""
        write(os.path.join(self.folder, "mode"),
              json.dumps({"identifiers": True, "keeps": True, "delay": 0, "taken": [], **how}))

    def connected(self):
        """The devices with a connection, and the sockets that they lead to."""
        return {f"/dev/nbd{number}": read(f"{self.folder}/nbd{number}.socket")
                for number in range(self.count) if read(f"{BLOCK}/nbd{number}/pid")}

    def release(self):
        for device in self.connected():
            disconnect(self.folder, device)


def clear(device):
    """An unconnected device."""
    name = os.path.basename(device)
    for attribute in ("pid", "backend"):
        if os.path.exists(f"{BLOCK}/{name}/{attribute}"):
            os.unlink(f"{BLOCK}/{name}/{attribute}")
    write(f"{BLOCK}/{name}/size", "0\n")
    if os.path.lexists(device):
        os.unlink(device)
    write(device, "")


def connect(folder, mode, socket, device, more):
    name = os.path.basename(device)
    time.sleep(mode["delay"])
    if device in mode["taken"]:
        write(f"{BLOCK}/{name}/pid", "1\n")
        write(f"{BLOCK}/{name}/size", "8\n")
    try:
        os.close(os.open(f"{BLOCK}/{name}/pid", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        sys.exit("Error: Failed to setup device: EBUSY")
    mount = os.path.join(folder, name)
    os.makedirs(mount, exist_ok=True)
    # It keeps the output open.
    subprocess.run(["setsid", "--fork", "nbdfuse", f"{mount}/played", "--unix", socket], check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not os.path.exists(f"{mount}/played"):
        time.sleep(0.01)
    loop = run("losetup", "--find", "--show", *(["--read-only"] if "-readonly" in more else []),
               f"{mount}/played")
    os.unlink(device)
    os.mknod(device, stat.S_IFBLK | 0o600, os.stat(loop).st_rdev)
    write(f"{folder}/{name}.socket", socket)
    write(f"{folder}/{name}.loop", loop)
    write(f"{BLOCK}/{name}/size", str(os.stat(f"{mount}/played").st_size // 512) + "\n")
    if "-nonetlink" in more:
        daemon = subprocess.Popen(
            ["nbd-client", "-c", "import time; time.sleep(1000)", "-unix", socket, device],
            executable=sys.executable, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        write(f"{folder}/{name}.daemon", str(daemon.pid))
        write(f"{BLOCK}/{name}/pid", f"{daemon.pid}\n")
        return
    if "-i" in more and mode["keeps"]:
        write(f"{BLOCK}/{name}/backend", more[more.index("-i") + 1] + "\n")
    write(f"{BLOCK}/{name}/pid", f"{os.getpid()}\n")


def disconnect(folder, device):
    name = os.path.basename(device)
    if os.path.exists(f"{folder}/{name}.loop"):
        run("losetup", "--detach", read(f"{folder}/{name}.loop"))
        run("umount", "--lazy", f"{folder}/{name}")
        os.unlink(f"{folder}/{name}.loop")
    if os.path.exists(f"{folder}/{name}.daemon"):
        os.kill(int(read(f"{folder}/{name}.daemon")), 9)
        os.unlink(f"{folder}/{name}.daemon")
    clear(device)


def lacks():
    """What this machine lacks to play; empty: nothing."""
    for program in ("nbdfuse", "losetup", "mount", "setsid"):
        if shutil.which(program) is None:
            return "no " + program
    return ""


def main():
    folder, arguments = sys.argv[1], sys.argv[2:]
    mode = json.loads(read(os.path.join(folder, "mode")))
    if not arguments:
        sys.exit("Usage: nbd-client -name|-N name host [port] nbd_device\n\t" +
                 ("[-i ident|-nonetlink|-L]" if mode["identifiers"] else "[-nonetlink|-L]"))
    if arguments[0] == "-d":
        disconnect(folder, arguments[1])
    elif not mode["identifiers"] and "-i" in arguments:
        sys.exit("nbd-client: unrecognized option '-i'")
    else:
        connect(folder, mode, arguments[1], arguments[2], arguments[3:])


if __name__ == "__main__":
    main()
