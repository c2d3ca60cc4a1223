"""Times operations as their work grows by ten and by a hundred, and fits an exponent to each.

  python3 bench/growth/growth.py build/release --output build/bench [--folder FOLDER] [--only ROW...]

Costs are processor time, the kernel's included, the least of several runs. What an operation costs with
no work is measured too and subtracted. Writes growth.json, growth.md and growth.svg; rows that are not run stay
in growth.json with --keep, so that a run can be done in parts. --document also writes the page and the
picture for docs/generated. Exit status 1 if an exponent is above 1.05.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import statistics
import sys
import tempfile
import time

import fit
import maps
import serving
import stores
import volumes

GROUPS = {"maps": maps.Maps, "stores": stores.Stores, "servers": serving.Servers, "volumes": volumes.Volumes}
ROWS = {  # row: (group, operation, what grows, amounts)
    "bits": ("maps", "`delta` of a bitmap to a map", "MiB of bits", (2, 20, 200)),
    "images": ("maps", "`delta` of two raw images", "MiB", (16, 160, 1600)),
    "print": ("maps", "`map convert` of a map to CSV", "extents", (200_000, 2_000_000, 20_000_000)),
    "parse": ("maps", "`map convert` of CSV to a map", "extents", (100_000, 1_000_000, 10_000_000)),
    "merge": ("maps", "`map merge`", "maps of 20,000 runs", (3, 30, 300)),
    "append": ("maps", "`chain append` of 50 maps", "snapshots there", (100, 1000, 10_000)),
    "remove": ("maps", "`chain remove` in the middle", "snapshots there", (100, 1000, 10_000)),
    "history": ("maps", "`chain delta` of first and last", "snapshots there", (100, 1000, 10_000)),
    "full": ("stores", "`backup create`, random data", "MiB", (12, 120, 1200)),
    "restore": ("stores", "`backup restore`", "MiB", (12, 120, 1200)),
    "increment": ("stores", "`backup create`, one block", "MiB in the repository", (12, 120, 1200)),
    "listed": ("servers", "`serve`, a stream", "blocks", (100_000, 1_000_000, 10_000_000)),
    "list": ("servers", "`list` of it", "blocks", (100_000, 1_000_000, 10_000_000)),
    "opens": ("servers", "`serve`, short streams", "streams", (100, 1000, 10_000)),
    "connections": ("servers", "`serve`, idle connections", "connections", (60, 600, 6000)),
    "tenants": ("servers", "`serve`, a stream for each token", "tokens", (200, 2000, 20_000)),
    "files": ("servers", "`serve`, 100 streams", "files in the volume", (100, 1000, 10_000)),
    "snapshots": ("volumes", "driver, one more snapshot", "snapshots of the volume", (100, 1000, 10_000)),
    "snapshot-pages": ("volumes", "driver, ListSnapshots in pages", "snapshots", (100, 1000, 10_000)),
    "volumes": ("volumes", "driver, start", "volumes", (100, 1000, 10_000)),
    "volume-pages": ("volumes", "driver, ListVolumes in pages", "volumes", (100, 1000, 10_000)),
}


def measured(run, rounds, seconds):
    """The least processor seconds, because what disturbs only adds, and the median of MiB."""
    results, began = [], time.monotonic()
    while len(results) < rounds or (len(results) < 20 and time.monotonic() - began < seconds):
        results.append(run())
    costs, memory = zip(*results)
    return min(costs), statistics.median(memory)


def grow(world, row, options):
    _, operation, grows, work = ROWS[row]
    prepare = getattr(world, row.replace("-", "_"))
    nothing = prepare(0)
    fixed = measured(nothing, options.rounds, options.seconds)[0] if nothing else 0
    costs = [measured(prepare(each), options.rounds, options.seconds) for each in work]
    memory = [mib for _, mib in costs]
    return fit.Curve(operation, grows, list(work), [max(cost - fixed, 1e-6) for cost, _ in costs], fixed,
                     memory if all(memory) else None)


PAGE = """# Growth

Processor time of operations as their work grows by ten and by a hundred: the least of several runs,
without what the operation costs with no work. The exponent is that of the curve through the three
costs, "last step" that between the last two; 1 is proportion. Made by `make bench-growth`{when}.

![Cost of each operation against its work](growth.svg)

{table}"""


def publish(curves, options):
    """The page and its picture."""
    when = f"\n{options.when}" if options.when else ""
    options.document.write_text(PAGE.format(when=when, table=fit.table(curves)), encoding="utf-8")
    (options.document.parent / "growth.svg").write_text(fit.picture(curves), encoding="utf-8")


def save(curves, options):
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "growth.json").write_text(json.dumps({row: dataclasses.asdict(curve) for row, curve in curves.items()}),
                                                encoding="utf-8")
    ordered = [curves[row] for row in ROWS if row in curves]
    (options.output / "growth.md").write_text(fit.table(ordered), encoding="utf-8")
    (options.output / "growth.svg").write_text(fit.picture(ordered), encoding="utf-8")
    return ordered


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--rounds", type=int, default=3, help="at least so many runs of each")
    parser.add_argument("--seconds", type=float, default=1.5, help="further runs within this time")
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS), help="none: writes what is kept")
    parser.add_argument("--keep", action="store_true", help="rows of an earlier run that are not run now")
    parser.add_argument("--document", type=pathlib.Path, help="the page in docs/generated")
    parser.add_argument("--when", help="for the page: date, machine and commit")
    options = parser.parse_args()
    curves, before = {}, options.output / "growth.json"
    if options.keep and before.exists():
        curves = {row: fit.Curve(**curve) for row, curve in json.loads(before.read_text(encoding="utf-8")).items()}
    for group in dict.fromkeys(ROWS[row][0] for row in options.only):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder, prefix="cbt-growth-"))
            world = GROUPS[group](options.build.resolve(), pathlib.Path(folder))
            stack.callback(world.stop)
            for row in [row for row in options.only if ROWS[row][0] == group]:
                began = time.monotonic()
                curves[row] = grow(world, row, options)
                save(curves, options)
                print(f"{row}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    ordered = save(curves, options)
    if options.document:
        publish(ordered, options)
    print(fit.table(ordered), end="")
    for curve in fit.above(ordered):
        print(f"{curve.operation}: grows faster than its work", file=sys.stderr)
    return 1 if fit.above(ordered) else 0


if __name__ == "__main__":
    sys.exit(main())
