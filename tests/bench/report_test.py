"""bench/report.py: ratios of rows that ran together, and none for rows without a counterpart."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import report  # noqa: E402


def row(name, rate, repetition=0, **more):
    return {"name": name + "/real_time", "run_type": "iteration", "repetition_index": repetition,
            "real_time": 1e9 / rate if rate else 0, "bytes_per_second": rate, **more}


def collect(*rows):
    return report.collect([{"benchmarks": list(rows)}])


class ReportTest(unittest.TestCase):
    def test_ratio_is_the_median_over_repetitions(self):
        groups = collect(*(row("diff/p/1/cbt", rate, i) for i, rate in enumerate([30, 10, 40])),
                         *(row("diff/p/1/ctz", rate, i) for i, rate in enumerate([10, 10, 10])))
        ((key, impls),) = groups.items()
        self.assertEqual(key, ("diff", "p", "1"))
        self.assertEqual(report.ratio((key[0], impls), "cbt", "ctz")[0], 3)

    def test_repetitions_pair_up_in_whatever_order_they_ran(self):
        groups = collect(row("diff/p/1/cbt", 40, 1), row("diff/p/1/cbt", 10, 0),
                         row("diff/p/1/ctz", 5, 0), row("diff/p/1/ctz", 20, 1))
        ((key, impls),) = groups.items()
        self.assertEqual(report.ratio((key[0], impls), "cbt", "ctz")[0], 2)

    def test_one_repetition_has_no_spread(self):
        groups = collect(row("diff/p/1/cbt", 4), row("diff/p/1/ctz", 2))
        ((key, impls),) = groups.items()
        self.assertEqual(report.ratio((key[0], impls), "cbt", "ctz"), (2, None))

    def test_missing_implementation_is_a_gap(self):
        groups = collect(row("diff/p/1/cbt", 4), row("diff/q/1/cbt", 4), row("diff/q/1/ctz", 2))
        table = report.tables(groups)
        self.assertIn("| p | 1 | 0.0 GB/s | - |", table)
        self.assertIn("| q | 1 | 0.0 GB/s | 2.00 |", table)

    def test_aggregates_are_not_repetitions(self):
        groups = collect(row("diff/p/1/cbt", 4),
                         {"name": "diff/p/1/cbt_median", "run_type": "aggregate"})
        self.assertEqual(list(groups.values())[0].keys(), {"cbt"})

    def test_what_failed_or_did_nothing_makes_no_ratio(self):
        failed = {"name": "diff/p/1/cbt", "error_occurred": True, "error_message": "no memory"}
        with self.assertRaisesRegex(report.ReportError, "diff/p/1/cbt: no memory"):
            collect(failed)
        with self.assertRaisesRegex(report.ReportError, "not family"):
            collect(row("diff/cbt", 1))
        with self.assertRaisesRegex(report.ReportError, "no benchmark rows"):
            collect()
        groups = collect(row("diff/p/1/cbt", 0), row("diff/p/1/ctz", 1))
        with self.assertRaisesRegex(report.ReportError, "bytes_per_second is 0"):
            report.tables(groups)

    def test_targets_take_the_worst_row(self):
        groups = collect(*(row(f"{name}/1048576/{impl}", rate) for name, impl, rate in (
            ("diff/random1e-3", "cbt", 24), ("diff/random1e-3", "ctz", 10),
            ("diff/random1e-2", "cbt", 20), ("diff/random1e-2", "ctz", 10))))
        path = pathlib.Path(report.__file__).with_name("targets.csv")
        self.assertIn("| 2 (random1e-2) | **not met** |", report.targets(groups, path))

    def test_a_target_that_is_open_says_why(self):
        groups = collect(row("relay/blocks-unix/8192/cbt", 6, items_per_second=6),
                         row("relay/blocks-unix/8192/direct", 10, items_per_second=10))
        path = pathlib.Path(report.__file__).with_name("targets.csv")
        self.assertRegex(report.targets(groups, path), r"\| 0.6 \| \*\*not met\*\*: \w")

    def test_every_target_can_be_read(self):
        path = pathlib.Path(report.__file__).with_name("targets.csv")
        groups = collect(row("other/p/1/cbt", 1))
        self.assertEqual(report.targets(groups, path).count("not measured"),
                         len(path.read_text(encoding="utf-8").splitlines()) - 1)

    def test_writes_files_and_fills_the_document_between_its_markers(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            raw = {"context": {"num_cpus": 2, "caches": []},
                   "benchmarks": [row("diff/identical/1048576/cbt", 9e9),
                                  row("diff/identical/1048576/limit", 1e10)]}
            (folder / "raw.json").write_text(json.dumps(raw), encoding="utf-8")
            (folder / "page.md").write_text(
                "before\n<!-- report begins -->\nold\n<!-- report ends -->\nafter\n", encoding="utf-8")
            with contextlib.redirect_stdout(io.StringIO()):
                status = report.main(["--json", "--output", str(folder / "out"), "--document",
                                      str(folder / "page.md"), str(folder / "raw.json")])
            self.assertEqual(status, 0)
            page = (folder / "page.md").read_text(encoding="utf-8")
            self.assertTrue(page.startswith("before\n") and page.endswith("\nafter\n"))
            self.assertNotIn("old", page)
            self.assertIn("| identical | 1 Mi | 9.0 GB/s | 0.90 |", page)
            for name in ("report.json", "report.md", "diff.svg"):
                self.assertTrue((folder / "out" / name).stat().st_size > 0)

    def test_bad_input_is_an_error_and_writes_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            bad = pathlib.Path(folder) / "bad.json"
            bad.write_text("{", encoding="utf-8")
            out = pathlib.Path(folder) / "out"
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(report.main(["--json", "--output", str(out), str(bad)]), 1)
            self.assertIn("report:", said.getvalue())
            self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main()
