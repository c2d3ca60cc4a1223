"""A row is only met if its command succeeded and every figure is present and right."""

import unittest

from rows import ROWS, Row
from scorecard import BEGIN, END, judge, parts, table_rows

OK = "figure: r_wrong 0\nfigure: r_a_tried 5\nfigure: r_b_tried 6\n\nsucceeded: True, 3 s\n"


def row(**changes):
    return Row(**{"number": 1, "title": "", "target": "", "commands": [], "words": "{r_wrong} of {tried}",
                  "targets": [("r_wrong", "==", 0), ("tried", ">=", 11)], "sums": {"tried": r"r_\w_tried"}, **changes})


class Scorecard(unittest.TestCase):
    def test_figures_that_are_right_are_met(self):
        self.assertEqual(judge(row(), OK), (True, "0 of 11"))

    def test_a_failed_command_is_not_met(self):
        self.assertFalse(judge(row(), OK.replace("True", "False"))[0])
        self.assertFalse(judge(row(), OK.split("succeeded")[0])[0])

    def test_a_figure_that_is_wrong_or_missing_is_not_met(self):
        self.assertFalse(judge(row(), OK.replace("wrong 0", "wrong 1"))[0])
        self.assertFalse(judge(row(), OK.replace("_b_tried 6", "_b_tried 5"))[0])
        met, seen = judge(row(), OK.replace("figure: r_wrong 0", ""))
        self.assertFalse(met)
        self.assertIn("r_wrong missing", seen)

    def test_figures_of_several_programs_add_up(self):
        self.assertFalse(judge(row(), OK + "figure: r_wrong 2\n")[0])

    def test_differences(self):
        less = row(targets=[("left", "==", 1)], sums={}, differences={"left": ("r_b_tried", "r_a_tried")})
        self.assertTrue(judge(less, OK)[0])
        self.assertFalse(judge(less, OK.replace("_b_tried 6", "_b_tried 7"))[0])

    def test_tests_that_ctest_counts(self):
        ctest = row(targets=[("tests_failed", "==", 0)], words="{tests_failed} of {tests_run}")
        text = "99% tests passed, {} tests failed out of 80\n" + OK
        self.assertEqual(judge(ctest, text.format(0)), (True, "0 of 80"))
        self.assertFalse(judge(ctest, text.format(1))[0])

    def test_rows_that_stand_in_a_document(self):
        table = "\n| # | figure | target | seen | | run it |\n| --- | --- | --- | --- | --- | --- |\n" \
            "| 1 | a | 0 | 0 of 3 | met | `one` |\n| 12 | b | 1 |  | not run | `two \\| three` |\n"
        head, middle, rest = parts(f"before\n{BEGIN}{table}{END}\nbehind")
        self.assertEqual((head, rest), ("before\n", "\nbehind"))
        self.assertEqual(list(table_rows(middle)), [(1, ("0 of 3", "met")), (12, ("", "not run"))])
        self.assertIsNone(parts(f"before\n{BEGIN}{table}"))

    def test_rows_have_a_target_and_a_run(self):
        numbers = [one.number for one in ROWS]
        self.assertEqual(sorted(set(numbers)), numbers)
        for one in ROWS:
            self.assertTrue(one.targets, one)
            self.assertTrue(bool(one.commands) != bool(one.same_run_as), one)


if __name__ == "__main__":
    unittest.main()
