#!/usr/bin/env python3
"""Compares a tree's skipped tests with may_skip.txt: a run that skips what this machine could do
fails.

    tests/skips.py BUILD_TREE

BUILD_TREE/skips.txt has a line for each skipped test: its ctest entry, its name and the reason,
separated by tabs.
"""

import fnmatch
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def words_of(path):
    try:
        return set(pathlib.Path(path).read_text(encoding="utf-8").split())
    except OSError:
        return set()


def lacks(condition):
    """Whether this machine lacks what the condition names."""
    kind, _, name = condition.partition(":")
    if kind == "always":
        return True
    if kind == "root":
        return os.geteuid() != 0
    if kind == "loop":
        return os.geteuid() != 0 or not os.path.exists("/dev/loop-control")
    if kind == "program":
        return shutil.which(name) is None
    if kind == "reach":
        return any(not folder.stat().st_mode & 0o001 for folder in (HERE, *HERE.parents))
    if kind == "ipv6":
        return not words_of("/proc/net/if_inet6")
    if kind == "go-modules":
        return (shutil.which("go") is None or
                subprocess.run([HERE / "go/modules.sh", "--built"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0)
    if kind == "python-env":
        return subprocess.run([HERE / "python/environment.sh", "--built"], stdout=subprocess.DEVNULL, check=False).returncode != 0
    if kind == "cpu":
        return name not in words_of("/proc/cpuinfo")
    if kind == "filesystem":
        return name not in words_of("/proc/filesystems")
    if kind == "variable":
        return not os.environ.get(name)
    if kind == "asset":
        assets = os.environ.get("KUBEBUILDER_ASSETS")
        return not assets or not os.path.exists(os.path.join(assets, name))
    sys.exit(f"may_skip.txt: unknown condition {condition}")


def read_list(text):
    """[(pattern, conditions)]"""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) < 2:
            sys.exit(f"may_skip.txt:{number}: no condition")
        entries.append((words[0], words[1:]))
    return entries


def check(skips, entries):
    """Lines of findings, and the number of expected skips."""
    findings, expected = [], 0
    for line in skips.splitlines():
        entry, test, reason = line.split("\t", 2)
        conditions = [name for pattern, names in entries if fnmatch.fnmatchcase(f"{entry}:{test}", pattern) for name in names]
        if any(lacks(condition) for condition in conditions):
            expected += 1
        else:
            why = f"this machine has what it needs ({', '.join(conditions)})" if conditions else "it is not in tests/may_skip.txt"
            findings.append(f"{entry}: {test} was skipped ({reason}), and {why}")
    return findings, expected


def self_test():
    entries = read_list("a/x_test:S.* always # why\nb/*:*/avx9 cpu:no_such_flag\nc/*:* root cpu:no_such_flag\nd/*:* cpu:processor\ne/*:* program:sh\nf/*:* program:no-such-tool\ng/*:* variable:PATH\nh/*:* variable:NO_SUCH_VARIABLE\n")
    findings, expected = check("a/x_test\tS.One\tr\na/x_test\tT.One\tr\nb/y\tP.Q/avx9\tr\nc/z\tA.B\tr\nd/z\tA.B\tr\ne/z\tA.B\tr\nf/z\tA.B\tr\ng/z\tA.B\tr\nh/z\tA.B\tr\n", entries)
    assert expected == 5 and len(findings) == 4, (findings, expected)
    assert "not in tests/may_skip.txt" in findings[0] and all("has what it needs" in line for line in findings[1:]), findings
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "etcd").touch()
        assets = os.environ.pop("KUBEBUILDER_ASSETS", None)
        assert lacks("asset:etcd")
        os.environ["KUBEBUILDER_ASSETS"] = folder
        assert not lacks("asset:etcd") and lacks("asset:kubelet")
        os.environ.pop("KUBEBUILDER_ASSETS")
        if assets is not None:
            os.environ["KUBEBUILDER_ASSETS"] = assets
        assert main(folder) == 0, "a run without skips is green"
        pathlib.Path(folder, "skips.txt").write_text("q/r_test\tA.B\tr\n", encoding="utf-8")
        assert main(folder) == 1


def main(tree):
    path = pathlib.Path(tree) / "skips.txt"
    skips = path.read_text(encoding="utf-8") if path.exists() else ""
    findings, expected = check(skips, read_list((HERE / "may_skip.txt").read_text(encoding="utf-8")))
    for finding in findings:
        print(f"skips: {finding}")
    print(f"skips: {expected} tests skipped because this machine lacks something, {len(findings)} without a reason")
    return 1 if findings else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    elif len(sys.argv) == 2:
        sys.exit(main(sys.argv[1]))
    else:
        sys.exit(__doc__)
