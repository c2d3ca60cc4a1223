"""bench/growth/fit.py and bench/command/turns.py: exponents, ratios, and what is written of them."""

import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH / "growth"), str(BENCH / "command")]
import fit  # noqa: E402
import turns  # noqa: E402

WORK = [10, 100, 1000]


def curve(cost, **more):
    return fit.Curve("op", "items", WORK, [cost(work) for work in WORK], **more)


class GrowthTest(unittest.TestCase):
    def test_exponents_of_powers(self):
        for power in (0, 0.5, 1, 2):
            self.assertAlmostEqual(fit.exponent(WORK, [3e-6 * work ** power for work in WORK]), power)

    def test_the_last_step_shows_what_begins_to_grow(self):
        costs = [1e-3 * work + 1e-6 * work ** 2 for work in WORK]
        self.assertGreater(fit.last_step(WORK, costs), 1.2)
        self.assertGreater(fit.last_step(WORK, costs), fit.exponent(WORK, costs))

    def test_only_what_grows_faster_than_its_work_is_above(self):
        flat, square = curve(lambda work: 0.01), curve(lambda work: 1e-6 * work ** 2)
        self.assertEqual(fit.above([flat, curve(lambda work: 1e-3 * work), square]), [square])

    def test_the_table_has_memory_where_it_grows(self):
        text = fit.table([curve(lambda work: 1e-3 * work, fixed=0.004, mib=[1, 10, 100])])
        self.assertIn("| op | items | 10: 10 ms, 100: 100 ms, 1k: 1 s | 4 ms | 1.00 | 1.00 |", text)
        self.assertIn("| op, memory | items | 10: 1 MiB", text)

    def test_the_picture_is_xml_whatever_the_cost(self):
        text = fit.picture([curve(lambda work: 1e-9), curve(lambda work: work ** 2)] + [curve(lambda work: work)] * 20)
        self.assertEqual(len(xml.etree.ElementTree.fromstring(text).findall(".//{*}path[@fill='none']")), 22)


class TurnsTest(unittest.TestCase):
    def setUp(self):
        self.row = turns.Row("what", {"peer": "peer 1.0"}, {
            "cbt": [turns.Run(1, 0.5, 10), turns.Run(2, 1, 10), turns.Run(4, 1, 10)],
            "peer": [turns.Run(2, 5, 80), turns.Run(6, 5, 80), turns.Run(8, 5, 80)]})

    def test_ratios_are_of_turns_that_followed_each_other(self):
        self.assertEqual(turns.ratio(self.row.runs["peer"], self.row.runs["cbt"], "wall"), 2)

    def test_the_table_names_the_peer(self):
        self.assertIn("| what | 2 s, 1 s, 10 | peer 1.0 | 2, 5, 8 |", turns.table([self.row]))

    def test_rows_stay_in_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.json"
            self.assertEqual(turns.read_rows(path), {})
            path.write_text(turns.as_json({"row": self.row}), encoding="utf-8")
            self.assertEqual(turns.read_rows(path), {"row": self.row})

    def test_a_command_that_fails_ends_the_run(self):
        with self.assertRaises(SystemExit):
            turns.measure(turns.Program("false", ["false"]))
        turns.measure(turns.Program("false", ["false"], statuses=(1,)))


if __name__ == "__main__":
    unittest.main()
