"""Completions in the shells themselves: bash and zsh at a terminal, fish through its own command.

Usage: completion_test.py CBT BUILD_FOLDER   (with completions/, as cmake/describe.py leaves them)
"""

import json
import os
import pathlib
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import runner  # pylint: disable=wrong-import-position

CBT, FOLDER = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
TIME = 60  # a shell that is slower will never answer
END = "-- end --"
OFFER = "\x14"  # the key that lists the candidates: Ctrl-T, which starts no longer key


class Terminal:
    """An interactive shell at a terminal. Its candidates come through a pipe, one per line, then
    END.
    """

    def __init__(self, command, folder):
        self.terminal, inner = pty.openpty()
        self.answers, report = os.pipe()
        environment = {"HOME": folder, "PATH": os.environ["PATH"], "TERM": "dumb", "LC_ALL": "C.UTF-8",
                       "REPORT": str(report)}
        self.shell = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=environment, cwd=folder,
                                      pass_fds=[report], start_new_session=True)
        os.close(inner)
        os.close(report)
        self.buffer, self.shown = b"", []
        threading.Thread(target=self.drain, daemon=True).start()

    def drain(self):
        """Drains the terminal: a full one would block the shell."""
        try:
            while data := os.read(self.terminal, 4096):
                self.shown.append(data)
        except OSError:  # the shell has exited
            pass

    def answer(self, keys):
        os.write(self.terminal, keys.encode())
        lines = []
        while not lines or lines[-1] != END:
            while b"\n" not in self.buffer:
                ready, _, _ = select.select([self.answers], [], [], TIME)
                data = os.read(self.answers, 65536) if ready else b""
                if not data:
                    raise AssertionError(f"no answer to {keys!r}: {b''.join(self.shown)[-2000:]!r}")
                self.buffer += data
            line, _, self.buffer = self.buffer.partition(b"\n")
            lines.append(line.decode())
        return lines[:-1]

    def close(self):
        self.shell.kill()
        self.shell.wait()
        os.close(self.terminal)
        os.close(self.answers)


class Bash:
    # The key inserts all candidates into the line, and `cbt` reports the line.
    SETUP = """PS1= PS2=; set +o history; bind 'set enable-bracketed-paste off'
bind '"\\C-t": insert-completions'
cbt() {{ printf '%s\\n' "$@" '{end}' >&$REPORT; }}
. '{folder}/completions/bash/cbt'
printf '%s\\n' '{end}' >&$REPORT
"""

    def __init__(self, folder):
        setup = pathlib.Path(folder, "bashrc")
        setup.write_text(self.SETUP.format(end=END, folder=FOLDER))
        self.terminal = Terminal(["bash", "--noprofile", "--rcfile", setup, "-i"], folder)
        self.terminal.answer("")

    def offered(self, line):
        complete = line.split() if line[-1:] in ("", " ") else line.split()[:-1]
        return self.terminal.answer(f"cbt {line}{OFFER}\n")[len(complete):]


class Zsh:
    # Reports each word as it is added. compadd with -O, -A or -D adds nothing.
    SETUP = """unsetopt prompt_cr prompt_sp; PS1=
fpath=('{folder}/completions/zsh' $fpath)
autoload -U compinit; compinit -D -u
zstyle ':completion:*' completer _complete
compadd() {{
  if [[ ${{@[1,(i)(-|--)]}} != *-[a-zA-Z]#[OAD]* ]]; then
    local -a offered
    builtin compadd -O offered "$@"
    (($#offered)) && print -rl -u $REPORT -- "${{(@)offered}}"
  fi
  builtin compadd "$@"
}}
offer() {{ _main_complete; compstate[insert]= compstate[list]=; print -r -u $REPORT -- '{end}' }}
zle -C offer complete-word offer
bindkey '^T' offer
print -r -u $REPORT -- '{end}'
"""

    def __init__(self, folder):
        pathlib.Path(folder, ".zshrc").write_text("setopt extended_glob\n" + self.SETUP.format(end=END, folder=FOLDER))
        self.terminal = Terminal(["zsh", "-o", "no_global_rcs", "-i"], folder)
        self.terminal.answer("")

    def offered(self, line):
        return self.terminal.answer(f"\x15cbt {line}{OFFER}")


class Fish:
    def __init__(self, folder):
        self.folder = folder

    def offered(self, line):
        done = subprocess.run(["fish", "--no-config", "-c", f"source '{FOLDER}/completions/fish/cbt.fish'; complete -C $argv[1]",
                               f"cbt {line}"], env={"HOME": self.folder, "PATH": os.environ["PATH"], "TERM": "dumb"},
                              cwd=self.folder, text=True, capture_output=True, check=True, timeout=TIME)
        return [line.split("\t")[0] for line in done.stdout.splitlines()]

    class terminal:
        close = staticmethod(lambda: None)


def choices_of(command, path=()):
    """The choices of every option: (path, name, option)."""
    for option in command["options"]:
        if option["choices"]:
            yield path, option["names"][-1], option
    for sub in command["subcommands"]:
        yield from choices_of(sub, path + (sub["name"],))


class Cases:
    """The same for each shell."""

    SHELL = None

    @classmethod
    def setUpClass(cls):
        name = cls.SHELL.__name__.lower()
        if shutil.which(name) is None:
            raise unittest.SkipTest(f"no {name}")
        cls.root = json.loads(subprocess.run([CBT, "describe"], check=True, capture_output=True).stdout)["command"]
        cls.scratch = tempfile.TemporaryDirectory()
        for folder in ("json", "images"):
            pathlib.Path(cls.scratch.name, folder).mkdir()
        for file in ("monday.img", "images/tuesday.img"):
            pathlib.Path(cls.scratch.name, file).touch()
        cls.shell = cls.SHELL(cls.scratch.name)

    @classmethod
    def tearDownClass(cls):
        cls.shell.terminal.close()
        cls.scratch.cleanup()

    def offered(self, line):
        """Removes what a shell adds to a name: a slash, the option before an equals sign."""
        return sorted({word.rpartition("=")[2].rstrip("/") for word in self.shell.offered(line)})

    def test_commands(self):
        self.assertEqual(self.offered(""), sorted(sub["name"] for sub in self.root["subcommands"]))
        chain, = (sub for sub in self.root["subcommands"] if sub["name"] == "chain")
        self.assertEqual(self.offered("chain "), sorted(sub["name"] for sub in chain["subcommands"]))
        self.assertEqual(self.offered("del"), ["delta"])

    def test_options(self):
        self.assertIn("--block-size", self.offered("delta --bl"))
        self.assertEqual(self.offered("serve --tls-client"), ["--tls-client-ca"])
        self.assertNotIn("--tls-client-ca", self.offered("delta --tls"))

    def test_every_choice(self):
        found = list(choices_of(self.root))
        names = {name for _, name, _ in found}
        self.assertLessEqual({"--format", "--style", "--api", "--from", "--as", "--to", "--op", "--color"}, names)
        for path, name, option in found:
            with self.subTest(command=path, option=name):
                self.assertEqual(self.offered(f"{' '.join(path)} {name} "), sorted(option["choices"]))

    def test_choices(self):
        self.assertEqual(self.offered("delta --format "), ["csv", "json", "ndjson", "table"])
        self.assertEqual(self.offered("delta -f nd"), ["ndjson"])
        self.assertEqual(self.offered("delta --format=ta"), ["table"])
        self.assertEqual(self.offered("delta monday.img --format "), ["csv", "json", "ndjson", "table"])
        # A format that only reports changes has no allocation.
        self.assertIn("thin-delta", self.offered("delta --from th"))
        self.assertEqual(self.offered("allocated --from th"), ["thin-dump"])

    def test_lists(self):
        self.assertEqual(self.offered("serve --api pa"), ["paged"])
        self.assertEqual([word.rpartition(",")[2] for word in self.offered("serve --api csi,pa")], ["paged"])

    def test_files(self):
        self.assertEqual(self.offered("delta mon"), ["monday.img"])
        self.assertEqual(self.offered("delta --output mon"), ["monday.img"])
        self.assertEqual(self.offered("serve --root "), ["images", "json"])


class BashTest(Cases, unittest.TestCase):
    SHELL = Bash


class ZshTest(Cases, unittest.TestCase):
    SHELL = Zsh


class FishTest(Cases, unittest.TestCase):
    SHELL = Fish


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
