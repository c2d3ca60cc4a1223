"""`deploy/certificate.sh`: certificates that clients and servers take, and Secrets without the authority's key.

Usage: certificate_test.py
"""

import base64
import os
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "..", "deploy", "certificate.sh")
sys.path.append(os.path.join(HERE, "..", "support"))

# pylint: disable=wrong-import-position
import runner  # noqa: E402


class CertificateTest(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(prefix="cbt-certificate-"))
        self.authority = os.path.join(self.folder, "authority")

    def run_script(self, *more, check=True, **environment):
        return subprocess.run([SCRIPT, "--authority", self.authority, "--namespace", "storage", "--secret",
                               "certs", *more], capture_output=True, text=True, check=check,
                              env={**os.environ, **environment})

    def secret(self, *more, **environment):
        done = self.run_script(*more, **environment)
        self.assertEqual(done.stderr, "")
        made = yaml.safe_load(done.stdout)
        files = {}
        for name, data in made["data"].items():
            files[name] = os.path.join(self.folder, name)
            with open(files[name], "wb") as file:
                file.write(base64.b64decode(data))
        return made, files

    def openssl(self, *command):
        done = subprocess.run(["openssl", *command], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    def test_of_a_server(self):
        made, files = self.secret("csi-cbt.storage", "csi-cbt.storage.svc")
        self.assertEqual((made["kind"], made["type"], made["metadata"]),
                         ("Secret", "kubernetes.io/tls", {"name": "certs", "namespace": "storage"}))
        self.assertEqual(set(files), {"ca.crt", "tls.crt", "tls.key"})
        for host, good in (("csi-cbt.storage", True), ("csi-cbt.storage.svc", True), ("other", False)):
            code, _ = self.openssl("verify", "-CAfile", files["ca.crt"], "-purpose", "sslserver",
                                   "-verify_hostname", host, files["tls.crt"])
            self.assertEqual(code == 0, good, host)
        self.assertNotEqual(self.openssl("verify", "-CAfile", files["ca.crt"], "-purpose", "sslclient",
                                         files["tls.crt"])[0], 0)
        _, public = self.openssl("x509", "-in", files["tls.crt"], "-pubkey", "-noout")
        self.assertEqual(self.openssl("pkey", "-in", files["tls.key"], "-pubout")[1], public)
        with open(os.path.join(self.authority, "ca.key"), encoding="utf-8") as file:
            key = file.read()
        for path in files.values():
            with open(path, encoding="utf-8") as file:
                self.assertNotIn(key, file.read())
        self.assertEqual(os.stat(os.path.join(self.authority, "ca.key")).st_mode & 0o077, 0)

    def test_of_a_client(self):
        _, files = self.secret("--client", "cbt-aggregated-api")
        self.assertEqual(self.openssl("verify", "-CAfile", files["ca.crt"], "-purpose", "sslclient",
                                      files["tls.crt"])[0], 0)
        _, subject = self.openssl("x509", "-in", files["tls.crt"], "-noout", "-subject", "-nameopt",
                                  "RFC2253")
        self.assertIn("CN=cbt-aggregated-api", subject)

    def test_rotation_keeps_the_authority(self):
        first, _ = self.secret("a.b")
        second, files = self.secret("a.b", DAYS="1")
        self.assertEqual(first["data"]["ca.crt"], second["data"]["ca.crt"])
        self.assertNotEqual(first["data"]["tls.key"], second["data"]["tls.key"])
        self.assertEqual(self.openssl("x509", "-in", files["tls.crt"], "-noout", "-checkend",
                                      "3600")[0], 0)
        self.assertNotEqual(self.openssl("x509", "-in", files["tls.crt"], "-noout", "-checkend",
                                         "172800")[0], 0)

    def test_what_it_does_not_understand(self):
        for words in ((), ("--client", "x", "host"), ("--other", "x"), ("--client",)):
            done = self.run_script(*words, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertIn("--authority DIR", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
