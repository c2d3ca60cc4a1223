"""What an image takes from this Debian: shared libraries, tools, and the packages that own them."""

import dataclasses
import os
import re
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


def libraries(program):
    """The shared libraries of a program, and the loader, as the loader itself finds them."""
    listed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    paths = []
    for line in listed.splitlines():
        if "not found" in line:
            raise SystemExit(f"image: {program}: {line.strip()}")
        found = re.search(r"(/\S+) \(0x", line)
        if found:
            paths.append(found.group(1))
    return paths


def loaded_libraries(linked):
    """The libraries of LOADED, which are beside those that are linked, with all that they need."""
    folders = sorted({os.path.dirname(path) for path in linked})
    paths = []
    for name in LOADED:
        found = [os.path.join(folder, name) for folder in folders
                 if os.path.exists(os.path.join(folder, name))]
        if not found:
            raise SystemExit(f"image: {name} is in none of {', '.join(folders)}")
        paths += [found[0], *libraries(found[0])]
    return paths


def owners_of(paths):
    """The names of the Debian packages that own the files; none elsewhere."""
    spellings = {spelling for path in paths
                 for spelling in (path, os.path.realpath(path), path.removeprefix("/usr"), "/usr" + path)}
    try:
        # One query for all: each reads the lists of every package. It fails for unknown spellings.
        owners = subprocess.run(["dpkg-query", "-S", *sorted(spellings)], capture_output=True, text=True,
                                check=False).stdout
    except FileNotFoundError:
        return []
    names = {name.strip().split(":")[0] for line in owners.splitlines() if ": /" in line
             and not line.startswith("diversion") for name in line.split(": /")[0].split(",")}
    return sorted(names)


def described(names):
    """What dpkg knows of packages that are installed."""
    fields = "${Package}\\t${Version}\\t${Architecture}\\t${source:Package}\\n"
    listed = subprocess.run(["dpkg-query", "-W", "-f", fields, *names], capture_output=True, text=True,
                            check=False).stdout
    found = []
    for line in listed.splitlines():
        name, version, architecture, source = line.split("\t")
        control = (f"Package: {name}\nStatus: install ok installed\nVersion: {version}\n"
                   f"Architecture: {architecture}\nSource: {source}\n")
        found.append(Package(name, version, architecture, source, control))
    return sorted(set(found), key=lambda package: package.name)


def licence_of(package):
    """The file with its licences, or None."""
    file = f"/usr/share/doc/{package}/copyright"
    return file if os.path.exists(file) else None
