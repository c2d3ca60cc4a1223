#!/usr/bin/env python3
"""Runs benchmark programs and writes their results as ratios.

    bench/report.py --output DIR PROGRAM...          runs the programs
    bench/report.py --output DIR --json FILE...      reads their earlier output

Rows are named family/pattern/size/impl. Each repetition is one row; a ratio is the median of the ratios
of repetitions of equal number, which ran in the same process and, interleaved, under the same
conditions. DIR gets report.json (raw), report.md and an SVG picture.
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

OURS = "cbt"
# A counter: work for each second of processor time.
CPU = "per_cpu_s"
LEVELS = ["scalar", "sse42", "avx2", "avx512", "neon"]
FAMILIES = ["diff", "count", "layout", "compare", "encode", "decode", "transform", "seek", "parallel",
            "map_to_runs", "map_from_bitmap", "union", "to_roaring", "from_roaring", "chain", "track", "size", "rpc", "relay",
            "transport", "first", "source", "sidecar"]
PATTERNS = ["identical", "random1e-4", "random1e-3", "random1e-2", "random1e-1", "random5e-1",
            "clustered", "full"]
# The peer that the levels are compared with, if a family has one.
MAIN_PEER = {"diff": "ctz", "compare": "memcmp", "encode": "libprotobuf", "decode": "libprotobuf"}


class ReportError(Exception):
    """Input from which no ratio can be computed."""


def rate(row):
    """Work per second of one repetition: bytes, or items if there are no bytes."""
    for key in ("bytes_per_second", "items_per_second"):
        if key in row:
            if not row[key] > 0:
                raise ReportError(f"{row['name']}: {key} is {row[key]}")
            return row[key]
    raise ReportError(f"{row['name']}: neither bytes_per_second nor items_per_second")


def unit(family, row):
    if family in ("encode", "decode", "transform", "rpc", "relay", "transport"):
        return "items_per_second"
    return "bytes_per_second" if "bytes_per_second" in row else "items_per_second"


def collect(reports):
    """{(family, pattern, size): {impl: [row of repetition 0, ...]}} of google-benchmark's JSON."""
    groups = {}
    for report in reports:
        for row in report.get("benchmarks", []):
            if row.get("run_type") == "aggregate":
                continue
            if row.get("error_occurred"):
                raise ReportError(f"{row['name']}: {row.get('error_message', 'failed')}")
            name = re.sub("(/real_time|/threads:[0-9]+|/iterations:[0-9]+)+$", "", row["name"])
            parts = name.split("/")
            if len(parts) < 4:
                raise ReportError(f"{name}: not family/pattern/size/impl")
            family, pattern, size, impl = parts[0], "/".join(parts[1:-2]), parts[-2], parts[-1]
            rows = groups.setdefault((family, pattern, size), {}).setdefault(impl, [])
            rows.append(row)
    if not groups:
        raise ReportError("no benchmark rows")
    for impls in groups.values():
        for rows in impls.values():
            rows.sort(key=lambda row: row.get("repetition_index", 0))
    return {key: dict(sorted(groups[key].items(), key=lambda item: impl_order(item[0])))
            for key in sorted(groups, key=group_order)}


def place(names, name):
    return names.index(name) if name in names else len(names)


def impl_order(impl):
    return place([OURS, *LEVELS], impl), impl == "limit", impl


def group_order(key):
    """Repetitions ran in any order; tables have their own."""
    family, pattern, size = key
    plain = pattern.removeprefix("diff-")
    return (place(FAMILIES, family), family, size.zfill(20), place(PATTERNS, plain), pattern)


def rates(group, impl, key=None):
    family, impls = group
    rows = impls[impl]
    key = key or unit(family, rows[0])
    values = []
    for row in rows:
        rate(row)  # refuses zeros
        if key not in row:
            raise ReportError(f"{row['name']}: no {key}")
        values.append(row[key])
    return values


def ratio(group, numerator, denominator, key=None):
    """Median and half the interquartile range, relative; None if a side is missing."""
    if numerator not in group[1] or denominator not in group[1]:
        return None
    a, b = rates(group, numerator, key), rates(group, denominator, key)
    if len(a) == len(b):
        values = [x / y for x, y in zip(a, b)]
    else:
        values = [statistics.median(a) / statistics.median(b)]
    middle = statistics.median(values)
    if len(values) < 3:
        return middle, None
    quartiles = statistics.quantiles(values, n=4)
    return middle, (quartiles[2] - quartiles[0]) / 2 / middle


def show_ratio(found):
    if found is None:
        return "-"
    middle, spread = found
    digits = 2 if middle < 10 else 1 if middle < 100 else 0
    return f"{middle:.{digits}f}" + (f" (~{100 * spread:.0f} %)" if spread and spread >= 0.05 else "")


def show_ratios(group, numerator, denominator):
    """Of time; and of processor time, where both sides have counted it."""
    text = show_ratio(ratio(group, numerator, denominator))
    both = [group[1].get(impl, [{}]) for impl in (numerator, denominator)]
    if all(CPU in row for rows in both for row in rows):
        text += f", CPU {show_ratio(ratio(group, numerator, denominator, CPU))}"
    return text


def show_rate(value, family_unit):
    if family_unit == "bytes_per_second":
        return f"{value / 1e9:.1f} GB/s"
    return f"{value / 1e6:.0f} M/s" if value >= 1e6 else f"{value / 1e3:.0f} k/s"


def show_size(text):
    if text.isdigit() and int(text) >= 1 << 20 and int(text) % (1 << 20) == 0:
        return f"{int(text) >> 20} Mi"
    return text


def tables(groups):
    """One table per family: our rate, its ratio to every peer, and the levels' ratios to the main peer."""
    text = []
    for family in dict.fromkeys(key[0] for key in groups):
        mine = {key: impls for key, impls in groups.items() if key[0] == family}
        impls = list(dict.fromkeys(impl for found in mine.values() for impl in found))
        peers = [impl for impl in impls if impl != OURS and impl not in LEVELS]
        levels = [impl for impl in LEVELS if impl in impls]
        peer = MAIN_PEER.get(family)
        if family == "size":  # nothing is timed: bytes an extent
            heads = ["pattern", "blocks"] + impls
        elif OURS not in impls:  # parallel: the rows are numbers of threads
            heads = ["pattern", "size"] + [f"{impl}" for impl in impls]
            if len(impls) == 2:
                heads.append(f"{impls[1]} / {impls[0]}")
        else:
            heads = ["pattern", "size", OURS] + [f"/ {other}" for other in peers]
            if peer:
                heads += [f"{level} / {peer}" for level in levels]
        text += [f"### {family}", "", "| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
        for key, found in mine.items():
            group = (family, found)
            cells = [key[1], show_size(key[2])]

            def median_rate(impl, group=group, found=found):
                if impl not in found:
                    return "-"
                if family == "size":
                    return f"{found[impl][0]['bytes_per_extent']:.2f} B"
                if family in ("chain", "first"):
                    return f"{1e3 / statistics.median(rates(group, impl)):.2f} ms"
                if family == "seek":
                    times = [row["real_time"] for row in found[impl]]
                    return f"{statistics.median(times):.0f} ns"
                return show_rate(statistics.median(rates(group, impl)), unit(family, found[impl][0]))

            if family == "size":
                cells += [median_rate(impl) for impl in impls]
            elif OURS not in impls:
                cells += [median_rate(impl) for impl in impls]
                if len(impls) == 2:
                    cells.append(show_ratio(ratio(group, impls[1], impls[0])))
            else:
                cells.append(median_rate(OURS))
                cells += [show_ratios(group, OURS, other) for other in peers]
                if peer:
                    cells += [show_ratio(ratio(group, level, peer)) for level in levels]
            text.append("| " + " | ".join(cells) + " |")
        text.append("")
    return "\n".join(text)


def targets(groups, path):
    """Rows of targets.csv, each with its measurement, and if it is not met the reason why it is open."""
    text = ["| target | limit | measured | |", "| --- | --- | --- | --- |"]
    with open(path, newline="", encoding="utf-8") as file:
        for target in csv.DictReader(file):
            patterns = target["patterns"].split()
            found = []
            for key, impls in groups.items():
                family, pattern, size = key
                if family != target["family"] or (target["size"] and size != target["size"]):
                    continue
                if patterns and pattern not in patterns:
                    continue
                if target["kind"] in ("ratio", "cpu"):
                    key = CPU if target["kind"] == "cpu" else None
                    value = ratio((family, impls), target["impl"], target["against"], key)
                    if value is not None:
                        found.append((value[0], pattern))
                elif target["impl"] in impls:
                    rows = impls[target["impl"]]
                    values = [row[target["against"]] for row in rows if target["against"] in row]
                    if values:
                        found.append((statistics.median(values), pattern))
            most = target["kind"] == "most"
            if not found:
                text.append(f"| {target['what']} | {target['limit']} | not measured | - |")
                continue
            worst, where = max(found) if most else min(found)
            limit = float(target["limit"])
            met = worst <= limit if most else worst >= limit
            shown = f"{worst:.3g}" + (f" ({where})" if len(found) > 1 else "")
            sign = "at most" if most else "at least"
            why = f": {target['open']}" if target["open"] else ""
            text.append(f"| {target['what']} | {sign} {target['limit']} | {shown} | "
                        f"{'met' if met else f'**not met**{why}'} |")
    return "\n".join(text) + "\n"


def machine(reports):
    """The machine that the numbers were measured on."""
    context = reports[0].get("context", {})
    model = platform.processor() or platform.machine()
    memory = ""
    try:
        for line in open("/proc/cpuinfo", encoding="utf-8"):
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
        kib = int(open("/proc/meminfo", encoding="utf-8").readline().split()[1])
        memory = f"{kib / (1 << 20):.0f} GiB"
    except OSError:
        pass
    caches = ", ".join(f"L{cache['level']}{'' if cache['type'] == 'Unified' else ' ' + cache['type']} "
                       f"{cache['size'] >> 10} KiB" for cache in context.get("caches", []))
    rows = [("processor", f"{model}, {context.get('num_cpus', os.cpu_count())} of them"),
            ("caches", caches), ("memory", memory),
            ("system", f"{platform.system()} {platform.release()}"),
            ("date", context.get("date", datetime.date.today().isoformat())[:10])]
    for name in ("compiler", "levels", "commit"):
        if context.get(name):
            rows.append((name, context[name]))
    return "\n".join(f"- {name}: {value}" for name, value in rows if value) + "\n"


def picture(groups):
    """Throughput of family diff at 1 MiB, one group of bars per pattern, on a logarithmic scale."""
    shown = [(key[1], impls) for key, impls in groups.items()
             if key[0] == "diff" and key[2] == str(1 << 20)]
    impls = [impl for impl in ("limit", OURS, "avx2", "ctz", "croaring")
             if any(impl in found for _, found in shown)]
    colours = {"limit": "#9a9a9a", OURS: "#2a7fd4", "avx2": "#7fb6e8", "ctz": "#e0892b",
               "croaring": "#b0529b"}
    bar, gap, left, width = 11, 14, 110, 640
    height = 40 + len(shown) * (len(impls) * bar + gap)
    low, high = 0.05, 128.0

    def x(value):
        import math
        return left + (width - left - 60) * max(0.0, math.log(value / low) / math.log(high / low))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="10">',
           '<style>text{fill:#444}@media(prefers-color-scheme:dark){text{fill:#ccc}}</style>']
    for i, impl in enumerate(impls):
        out.append(f'<rect x="{left + 95 * i}" y="6" width="10" height="10" fill="{colours[impl]}"/>')
        out.append(f'<text x="{left + 95 * i + 14}" y="15">{impl}</text>')
    y = 30
    for pattern, found in shown:
        out.append(f'<text x="{left - 8}" y="{y + len(impls) * bar / 2 + 3}" '
                   f'text-anchor="end">{pattern}</text>')
        for impl in impls:
            if impl in found:
                value = statistics.median(rates(("diff", found), impl)) / 1e9
                out.append(f'<rect x="{left}" y="{y}" width="{max(1, x(value) - left):.1f}" '
                           f'height="{bar - 2}" fill="{colours[impl]}"/>')
                out.append(f'<text x="{x(value) + 4:.1f}" y="{y + 8}">{value:.3g} GB/s</text>')
            y += bar
        y += gap
    out.append("</svg>")
    return "\n".join(out) + "\n"


def run(program, options):
    command = [program, "--benchmark_format=json", f"--benchmark_repetitions={options.repetitions}",
               f"--benchmark_min_time={options.min_time}",
               "--benchmark_enable_random_interleaving=true"]
    if options.filter:
        command.append(f"--benchmark_filter={options.filter}")
    print(f"{program} ...", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True)
    if done.returncode != 0:
        raise ReportError(f"{program} failed ({done.returncode}): {done.stderr.strip()[-500:]}")
    # A filter that matches nothing is not a program's fault.
    return json.loads(done.stdout) if done.stdout.strip() else {"benchmarks": []}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("inputs", nargs="+", metavar="PROGRAM|FILE")
    parser.add_argument("--json", action="store_true", help="the inputs are reports, not programs")
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--filter", default="")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--min-time", type=float, default=0.05)
    parser.add_argument("--context", action="append", default=[], metavar="NAME=TEXT")
    parser.add_argument("--document", type=pathlib.Path, help="put the tables between its markers")
    options = parser.parse_args(arguments)
    try:
        if options.json:
            reports = []
            for name in options.inputs:
                content = json.loads(pathlib.Path(name).read_text(encoding="utf-8"))
                reports += content if isinstance(content, list) else [content]
        else:
            reports = [run(program, options) for program in options.inputs]
        for pair in options.context:
            name, _, text = pair.partition("=")
            reports[0].setdefault("context", {})[name] = text
        groups = collect(reports)
        here = pathlib.Path(__file__).resolve().parent
        ratios = tables(groups)
        text = (f"{machine(reports)}\n### Targets\n\n{targets(groups, here / 'targets.csv')}\n{ratios}")
        drawing = picture(groups)
    except (ReportError, json.JSONDecodeError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "report.json").write_text(json.dumps(reports), encoding="utf-8")
    (options.output / "report.md").write_text(text, encoding="utf-8")
    (options.output / "diff.svg").write_text(drawing, encoding="utf-8")
    if options.document:
        old = options.document.read_text(encoding="utf-8")
        begin, end = "<!-- report begins -->\n", "<!-- report ends -->"
        head, _, rest = old.partition(begin)
        if end not in rest:
            print(f"report: {options.document} has no markers", file=sys.stderr)
            return 1
        options.document.write_text(f"{head}{begin}\n{text}\n{end}{rest.partition(end)[2]}",
                                    encoding="utf-8")
        (options.document.parent / "diff.svg").write_text(drawing, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
