"""Runs serve and relay with canaries in every secret and logs at the highest level: no canary may
appear in what the programs write, answer or show, in any common encoding.
"""

import base64
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import unittest
import urllib.request

import support


def writings(secret):
    """Common encodings of a secret: plain, hex, base64 at any alignment, percent-encoded, escaped,
    reversed.
    """
    raw = secret.encode()
    found = {secret, raw.hex(), raw.hex().upper(), raw.hex(" "), raw.hex(":"), secret[::-1],
             "".join(f"%{byte:02x}" for byte in raw), "".join(f"\\x{byte:02x}" for byte in raw),
             ", ".join(map(str, raw)), base64.b32encode(raw).decode().rstrip("=")}
    for before in range(3):
        # Only whole groups of the canary's own bytes, whatever surrounds it.
        text = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        inside = text[4 if before else 0 : len(text) - 4]
        found |= {inside, inside.replace("+", "-").replace("/", "_")}
    return found


class Searched(unittest.TestCase):
    def test_the_search_finds_what_is_there(self):
        canary = "canary-" + secrets.token_hex(12)
        for text in [f"x{canary}y", canary.encode().hex(), canary[::-1],
                     base64.b64encode(canary.encode()).decode(),
                     base64.b64encode(b"a" + canary.encode() + b"zz").decode(),
                     base64.urlsafe_b64encode(b"ab" + canary.encode()).decode()]:
            self.assertTrue(any(form in text for form in writings(canary)), text)
        self.assertFalse(any(form in "canary-" + "0" * 24 for form in writings(canary)))


@unittest.skipIf(shutil.which("openssl") is None, "no openssl here")
class Canaries(support.CbtTest):
    def setUp(self):
        super().setUp()
        os.makedirs(self.path("root/ns"))
        self.write("root/ns/mon.img", b"\1" * 8192 + bytes(4096))
        self.write("root/ns/tue.img", b"\2" * 4096 + b"\1" * 4096 + bytes(4096))
        names = ["token", "other_token", "session", "secret_value", "request_secret", "page_key"]
        self.canaries = {name: f"canary-{name.replace('_', '-')}-{secrets.token_hex(16)}"
                         for name in names}
        self.text("tokens", f"{self.canaries['token']} operator ns\n")
        self.text("sessions", f"{self.canaries['session']} ns mon,tue -\n")
        self.text("storage", f"password={self.canaries['secret_value']}\n")
        self.text("page-key", self.canaries["page_key"] + "\n")
        for name in ["token", "other_token", "session"]:
            self.text(name, self.canaries[name] + "\n")
        self.text("request-secrets", f"password={self.canaries['request_secret']}\n")
        self.texts = {}  # origin: text

    def text(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def identity(self):
        """A certificate whose private key is a canary too."""
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
             "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", self.path("key"), "-out",
             self.path("cert")], check=True, capture_output=True)
        with open(self.path("key"), encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if "-----" not in line]
        self.key_lines = [line for line in lines if len(line) > 20]
        shown = subprocess.run(["openssl", "ec", "-in", self.path("key"), "-noout", "-text"],
                               check=True, capture_output=True).stdout.decode()
        private = re.search(r"priv:\s*([0-9a-f:\s]+?)\s*pub:", shown)[1]
        self.key_hex = re.sub(r"[:\s]", "", private)[-64:]

    def start(self, name, *command):
        with open(self.path(name + ".out"), "wb") as out:
            program = self.start_server(name + ".err", *command, stdout=out)
        program.url = re.search(r"metrics on (http://127.0.0.1:\d+/metrics)\n",
                                self.read(name + ".err"))[1]
        return program

    def read(self, name):
        with open(self.path(name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def ask(self, *arguments):
        result = support.run(*arguments)
        self.texts[f"answer {len(self.texts)}: {' '.join(map(str, arguments[:6]))}"] = \
            result.stdout + result.stderr
        return result.code

    def test_none_of_them_gets_out(self):
        self.identity()
        tls = ["--tls-cert", self.path("cert"), "--tls-key", self.path("key")]
        common = ["--api", "csi,kubernetes,session,paged", "--tokens", self.path("tokens"),
                  "--sessions", self.path("sessions"), "--storage-secrets", self.path("storage"),
                  "--page-key", self.path("page-key"), "--log-level", "debug", "--metrics",
                  "127.0.0.1:0"]
        open_to_all = ["--listen", "127.0.0.1:0", *tls]
        trust = ["--tls-ca", self.path("cert")]
        server = self.start("serve", "serve", "--root", self.path("root"), *common, *open_to_all)
        plugin = self.start("plugin", "serve", "--root", self.path("root"), *common, "--listen",
                            f"unix://{self.path('plugin')}")
        relay = self.start("relay", "relay", "--plugin", plugin.address, *common, *open_to_all)
        programs = {"relay": relay, "serve": server, "plugin": plugin}
        codes = []
        for program in [server, relay]:
            for api in ["csi", "kubernetes", "session", "paged"]:
                named = api in ("kubernetes", "session")
                for target in ["tue", "missing", "../tue"]:
                    for token in ["token", "other_token", "session"]:
                        codes.append(self.ask(
                            "list", program.address, "--api", api, *trust, "--snapshot",
                            target if named else f"ns/{target}", "--base",
                            "mon" if api == "session" else "ns/mon",
                            *(["--token-file", self.path(token)] if named else []),
                            *(["--namespace", "ns"] if api == "kubernetes" else []),
                            *([] if named else ["--secrets-file", self.path("request-secrets")])))
            self.ask("conform", program.address, "--api", "kubernetes", *trust, "--snapshot", "tue",
                     "--base", "ns/mon", "--token-file", self.path("token"), "--namespace", "ns")
        # Both occurred: successful streams, and refusals of several kinds.
        self.assertIn(0, codes)
        self.assertGreater(len(set(codes)), 1)
        for name, program in programs.items():
            with urllib.request.urlopen(program.url) as page:
                self.texts[f"metrics of {name}"] = page.read().decode() + str(page.headers)
        for name, program in programs.items():
            program.send_signal(signal.SIGTERM)
            self.assertEqual(program.wait(30), 0)
            self.texts[f"stdout of {name}"] = self.read(name + ".out")
            self.texts[f"stderr of {name}"] = self.read(name + ".err")
            self.assertIn('event="stream closed"', self.texts[f"stderr of {name}"])
        wanted = {name: writings(secret) for name, secret in self.canaries.items()}
        wanted["tls_key"] = set(self.key_lines) | {self.key_hex, self.key_hex.upper()}
        hits = [f"{name} in {where}" for name, forms in wanted.items()
                for where, text in self.texts.items() if any(form in text for form in forms)]
        searched = sum(map(len, self.texts.values()))
        print(f"figure: r21_canaries {len(wanted)}")
        print(f"figure: r21_writings {sum(map(len, wanted.values()))}")
        print(f"figure: r21_texts_searched {len(self.texts)}")
        print(f"figure: r21_bytes_searched {searched}")
        print(f"figure: r21_hits {len(hits)}", flush=True)
        self.assertEqual(hits, [], json.dumps(hits, indent=1))


if __name__ == "__main__":
    support.main()
