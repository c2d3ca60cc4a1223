"""Man pages and completions are generated from the parser's own description, and valid;
completion_test.py uses them.

Usage: describe_test.py PROGRAM FOLDER   (with man/ and completions/, as cmake/describe.py leaves
them)
"""

import json
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import runner  # pylint: disable=wrong-import-position

PROGRAM, FOLDER = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
NAME = PROGRAM.name


def run(*command, **options):
    return subprocess.run([str(word) for word in command], text=True, capture_output=True,
                          stdin=subprocess.DEVNULL, check=False, **options)


def commands(command, path=()):
    yield path, command
    for sub in command["subcommands"]:
        yield from commands(sub, path + (sub["name"],))


class DescribeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = json.loads(run(PROGRAM, "describe").stdout)["command"]

    def test_every_help_has_what_is_described(self):
        for path, command in commands(self.root):
            text = run(PROGRAM, *path, "--help").stdout
            names = [name for option in command["options"] for name in option["names"]]
            names += [sub["name"] for sub in command["subcommands"]]
            self.assertTrue(names)
            for name in names:
                self.assertIn(name, text, path)
        self.assertNotIn("describe", run(PROGRAM, "--help").stdout)

    def test_choices_are_those_of_the_parser(self):
        found = [(path, option) for path, command in commands(self.root) for option in command["options"]
                 if option["choices"]]
        self.assertGreater(len(found), 10 if NAME == "cbt" else 0)
        for path, option in found:
            for name in option["names"]:
                with self.subTest(command=path, option=name):
                    done = run(PROGRAM, *path, name, "no-choice")
                    self.assertEqual(done.returncode, 2)
                    self.assertIn("'no-choice': not one of ", done.stderr)
                    named = done.stderr.rstrip().partition(" not one of ")[2].split(", ")
                    # `allocated` reads only some of the formats.
                    self.assertLessEqual(set(option["choices"]), set(named))
                    if name != "--from":
                        self.assertEqual(option["choices"], named)

    def test_every_command_has_a_page(self):
        wanted = {"-".join((NAME,) + path) + ".1": command for path, command in commands(self.root)}
        self.assertEqual({path.name for path in (FOLDER / "man").iterdir()}, set(wanted))
        for name, command in wanted.items():
            text = (FOLDER / "man" / name).read_text().replace("\\-", "-")
            for option in command["options"]:
                for word in option["names"]:
                    self.assertIn(word, text, name)

    def test_pages_are_sound(self):
        if shutil.which("mandoc") is None:
            self.skipTest("no mandoc")
        done = run("mandoc", "-Tlint", "-W", "warning", *sorted((FOLDER / "man").iterdir()))
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_shells_can_read_them(self):
        for shell, name in (("bash", f"bash/{NAME}"), ("zsh", f"zsh/_{NAME}"),
                            ("fish", f"fish/{NAME}.fish")):
            with self.subTest(shell):
                if shutil.which(shell) is None:
                    self.skipTest(f"no {shell}")
                done = run(shell, "-n", FOLDER / "completions" / name)
                self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
