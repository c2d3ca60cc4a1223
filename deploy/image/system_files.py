"""What an image takes from a Debian: shared libraries, tools, and the packages that own them. That is this
machine, or for another architecture a folder of foreign_root.sh. Paths are those in the Debian."""

import dataclasses
import os
import re
import shutil
import subprocess

# Loaded while the programs run.
LOADED = ("libcurl.so.4",)
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
# Compiled into the programs: libraries that are headers, or archives.
COMPILED_IN = ("libabsl-dev", "libboost-dev", "libcli11-dev", "libgrpc++-dev", "libprotobuf-dev",
               "libspdlog-dev", "libxsimd-dev", "libxxhash-dev", "prometheus-cpp-dev", "rapidjson-dev")


@dataclasses.dataclass(frozen=True)
class Package:
    name: str
    version: str
    architecture: str
    source: str
    control: str  # as in /var/lib/dpkg/status


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class System:
    """This machine."""

    root = ""
    strip = "strip"
    dpkg_query = ("dpkg-query",)

    def read(self, path):
        with open(self.root + path, "rb") as file:
            return file.read()

    def tool(self, name):
        """The program of this name, or None."""
        folders = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")
        found = shutil.which(name, path=":".join(self.root + folder for folder in folders))
        return found and found.removeprefix(self.root)

    def nbdkit_plugins(self):
        """The folder where nbdkit looks for plugins."""
        return re.search(r"^plugindir=(.*)$", run("nbdkit", "--dump-config"), re.MULTILINE)[1]

    def libraries(self, program):
        """The shared libraries of a program, and the loader, as the loader itself finds them.
        `program`: a file of this machine."""
        paths = []
        for line in run("ldd", program).splitlines():
            if "not found" in line:
                raise SystemExit(f"image: {program}: {line.strip()}")
            found = re.search(r"(/\S+) \(0x", line)
            if found:
                paths.append(found.group(1))
        return paths

    def loaded_libraries(self, linked):
        """The libraries of LOADED, which are beside those that are linked, with all that they need."""
        folders = sorted({os.path.dirname(path) for path in linked})
        paths = []
        for name in LOADED:
            found = [os.path.join(folder, name) for folder in folders
                     if os.path.exists(self.root + os.path.join(folder, name))]
            if not found:
                raise SystemExit(f"image: {name} is in none of {', '.join(folders)}")
            paths += [found[0], *self.libraries(self.root + found[0])]
        return paths

    def owners_of(self, paths):
        """The names of the Debian packages that own the files; none elsewhere."""
        spellings = {spelling for path in paths
                     for spelling in (path, os.path.realpath(self.root + path).removeprefix(self.root),
                                      path.removeprefix("/usr"), "/usr" + path)}
        try:
            # One query for all: each reads the lists of every package. It fails for unknown spellings.
            owners = subprocess.run([*self.dpkg_query, "-S", *sorted(spellings)], capture_output=True,
                                    text=True, check=False).stdout
        except FileNotFoundError:
            return []
        names = {name.strip().split(":")[0] for line in owners.splitlines() if ": /" in line
                 and not line.startswith("diversion") for name in line.split(": /")[0].split(",")}
        return sorted(names)

    def described(self, names):
        """What dpkg knows of packages that are installed."""
        fields = "${Package}\\t${Version}\\t${Architecture}\\t${source:Package}\\n"
        listed = subprocess.run([*self.dpkg_query, "-W", "-f", fields, *names], capture_output=True,
                                text=True, check=False).stdout
        found = []
        for line in listed.splitlines():
            name, version, architecture, source = line.split("\t")
            control = (f"Package: {name}\nStatus: install ok installed\nVersion: {version}\n"
                       f"Architecture: {architecture}\nSource: {source}\n")
            found.append(Package(name, version, architecture, source, control))
        return sorted(set(found), key=lambda package: package.name)

    def licence_of(self, package):
        """The file with its licences, or None."""
        file = f"/usr/share/doc/{package}/copyright"
        return file if os.path.exists(self.root + file) else None


class ForeignSystem(System):
    """A folder of foreign_root.sh. Nothing of it is run."""

    def __init__(self, root, triple):
        self.root = os.path.realpath(root)
        self.strip = f"{triple}-strip"
        self.dpkg_query = ("dpkg-query", f"--admindir={self.root}/var/lib/dpkg")
        self.folders = (f"/usr/lib/{triple}", f"/lib/{triple}")

    def nbdkit_plugins(self):
        return f"{self.folders[0]}/nbdkit/plugins"

    def libraries(self, program):
        loader = re.search(r"program interpreter: (\S+)\]", run("readelf", "--program-headers", program))
        found, waiting = [loader[1]] if loader else [], [program]
        while waiting:
            for name in re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "--dynamic", waiting.pop())):
                if name in (os.path.basename(path) for path in found):
                    continue
                places = [f"{folder}/{name}" for folder in self.folders
                          if os.path.exists(f"{self.root}{folder}/{name}")]
                if not places:
                    raise SystemExit(f"image: {program}: {name} is not in {self.root}")
                found.append(places[0])
                waiting.append(self.root + places[0])
        return found
