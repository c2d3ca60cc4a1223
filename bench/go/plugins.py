"""Compares two plugins in Go on grpc-go: generated messages and an obvious loop, and the engine.

  python3 bench/go/plugins.py build/release [--rounds N]

Each answers with some 24 million tuples, 8192 a message, from the same two bitmaps; the client counts bytes. They
take turns, so that a machine that becomes slower hits both. Prints the medians of: seconds of wall clock that the
client waits, processor seconds of the plugin, and their ratios; then what a call across the border takes.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

PROJECT = pathlib.Path(__file__).resolve().parents[2]
STYLES = ("extents", "blocks")
PLUGINS = ("generated", "engine")


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def build_program(build, folder):
    sys.path.insert(0, str(PROJECT / "tests" / "go"))
    import run  # pylint: disable=import-outside-toplevel,import-error
    reason = run.missing()
    if reason:
        sys.exit(f"plugins.py: {reason}")
    variables = run.environment(pathlib.Path(build).resolve(), pathlib.Path(folder))
    program = f"{folder}/bench"
    subprocess.run(["go", "build", "-o", program, "."], cwd=PROJECT / "bench/go", env=variables, check=True)
    return program, variables


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program, variables = build_program(arguments.build, folder)
        servers, rows, sizes = {}, {}, {}
        try:
            for style in STYLES:
                for plugin in PLUGINS:
                    socket = f"{folder}/{plugin}-{style}"
                    servers[style, plugin] = subprocess.Popen([program, "serve", socket, plugin, style], env=variables,
                                                              stdout=subprocess.PIPE, text=True)
                    if servers[style, plugin].stdout.readline() != "ready\n":
                        sys.exit(f"the plugin {plugin} does not start")
                for turn in range(arguments.rounds + 1):
                    for plugin in PLUGINS:
                        pid = servers[style, plugin].pid
                        before = processor_seconds(pid)
                        done = subprocess.run([program, "read", f"{folder}/{plugin}-{style}"], env=variables,
                                              stdout=subprocess.PIPE, text=True, check=True)
                        wall, size, messages = done.stdout.split()
                        if turn > 0:  # the first one warms both
                            rows.setdefault((style, plugin), []).append((float(wall), processor_seconds(pid) - before))
                        sizes.setdefault(style, set()).add((size, messages))
                for plugin in PLUGINS:
                    servers[style, plugin].terminate()
                    servers[style, plugin].wait(60)
        finally:
            for server in servers.values():
                server.kill()
                server.wait(60)
        for style in STYLES:
            if len(sizes[style]) != 1:
                sys.exit(f"the plugins differ in what they send: {sizes[style]}")
            size, messages = next(iter(sizes[style]))
            medians = {plugin: [statistics.median(column) for column in zip(*rows[style, plugin])] for plugin in PLUGINS}
            print(f"{style}: {messages} messages, {size} bytes, medians of {arguments.rounds} rounds")
            for plugin in PLUGINS:
                print(f"  {plugin:10} wall {medians[plugin][0]:6.2f} s, processor of the plugin {medians[plugin][1]:6.2f} s")
            wall, processor = (medians["engine"][i] / medians["generated"][i] for i in (0, 1))
            print(f"  the engine takes 1/{1 / wall:.1f} of the wall clock, 1/{1 / max(processor, 1e-3):.1f} of the processor")
        subprocess.run([program, "calls"], env=variables, check=True)


if __name__ == "__main__":
    main()
