"""Builds the site of documents and headers and uses it in a browser: navigation tree, search,
layout.

Usage: docs_browser.py OUTPUT   (a folder for the site and the browser's profile)

Needs chromium, chromedriver and Selenium; skipped without one of them.
"""

import functools
import http.server
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
import runner  # pylint: disable=wrong-import-position

OUTPUT = pathlib.Path(sys.argv[1]).resolve()
SITE = OUTPUT / "html"
TIME = 30  # seconds; anything slower will never come
GROUPS = ["Tutorials", "Guides", "Reference", "One source each", "Background"]
# With the widest tables, code and pictures.
WIDE = ["index.html", "page_docs_performance.html", "page_docs_reference_grpc_over_http2.html", "classcbt_1_1ChangeMap.html"]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/favicon.ico":  # browsers always request it
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


class DocsBrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for program in ("doxygen", "chromium", "chromedriver"):
            if shutil.which(program) is None:
                raise unittest.SkipTest(f"no {program}")
        try:
            # pylint: disable=import-outside-toplevel
            from selenium import webdriver
            from selenium.webdriver.chrome.service import Service
            from selenium.webdriver.support.ui import WebDriverWait
        except ImportError as error:
            raise unittest.SkipTest("no selenium") from error
        subprocess.run([sys.executable, "-B", ROOT / "docs/site/build.py", "--output", OUTPUT], check=True)
        options = webdriver.ChromeOptions()
        profile = OUTPUT / "profile"
        shutil.rmtree(profile, ignore_errors=True)
        # Chromium has no sandbox when run as root; the pages are ours.
        for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1400,1000",
                         f"user-data-dir={profile}"):
            options.add_argument(f"--{argument}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.browser = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
        cls.addClassCleanup(cls.browser.quit)
        cls.waiting = WebDriverWait(cls.browser, TIME, poll_frequency=0.05)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cls.addClassCleanup(server.server_close)
        cls.addClassCleanup(server.shutdown)
        cls.address = f"http://127.0.0.1:{server.server_port}/"

    def tearDown(self):
        self.assertEqual([entry for entry in self.browser.get_log("browser") if entry["level"] != "INFO"], [])

    def open(self, page, base=None):
        """A page with an entry of the tree selected."""
        self.browser.get("about:blank")
        self.browser.get((base or self.address) + page)
        self.wait("return document.querySelector('#nav-tree-contents .selected') !== null")

    def run_script(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def wait(self, script, *arguments):
        return self.waiting.until(lambda _: self.run_script(script, *arguments), f"never: {script} {arguments}")

    def tree(self):
        """The visible entries of the tree."""
        return self.run_script("return [...document.querySelectorAll('#nav-tree-contents .label a')]"
                               ".filter(a => a.offsetParent).map(a => a.textContent)")

    def test_tree_has_the_groups_of_the_documents(self):
        self.open("index.html")
        tree = self.tree()
        self.assertEqual([entry for entry in tree if entry in GROUPS], GROUPS)
        self.assertNotIn("Running servers", tree)
        self.run_script("[...document.querySelectorAll('#nav-tree-contents .label a')]"
                        ".find(a => a.textContent === 'Guides').closest('.item').querySelector('a').click()")
        self.wait("return [...document.querySelectorAll('#nav-tree-contents .label a')]"
                  ".some(a => a.offsetParent && a.textContent === 'Running servers')")
        self.run_script("[...document.querySelectorAll('#nav-tree-contents .label a')]"
                        ".find(a => a.textContent === 'Running servers').click()")
        self.wait("return document.title.includes('Running servers')")

    def test_tree_shows_where_a_page_is(self):
        for page, entry in (("page_docs_reference_sources_nbd.html", "NBD"), ("page_docs_log_open.html", "Open points"),
                            ("page_CHANGELOG.html", "Changelog"), ("classcbt_1_1ChangeMap.html", "ChangeMap")):
            with self.subTest(page):
                self.open(page)
                self.wait("return document.querySelector('#nav-tree-contents .selected .label').textContent.trim()"
                          " === arguments[0]", entry)

    def search(self, word, links):
        """Types the word and follows the links: the last one leads to a page, the others show more
        links.
        """
        self.run_script("searchBox.OnSearchFieldFocus(true)")
        self.browser.find_element("id", "MSearchField").send_keys(word)
        results = self.wait("return document.getElementById('MSearchResultsWindow').style.display === 'block'"
                            " && document.getElementById('MSearchResults')")
        self.browser.switch_to.frame(results)
        for link in links:
            self.wait("const link = [...document.querySelectorAll('a.SRSymbol, a.SRScope')]"
                      ".find(a => a.offsetParent && a.textContent.replaceAll('\\u00a0', ' ') === arguments[0]);"
                      "if (link) link.click(); return link !== undefined", link)
        self.browser.switch_to.default_content()

    def test_search(self):
        for word, links, title in (("ChangeMap", ["ChangeMap", "cbt::ChangeMap"], "cbt::ChangeMap Class"),
                                   ("retry_for", ["retry_for"], "cbt::rpc::ListRequest"),
                                   ("glossary", ["Glossary"], "Glossary"),
                                   ("running", ["Running servers"], "Running servers")):
            with self.subTest(word):
                self.open("index.html")
                self.search(word, links)
                self.wait("return document.title.includes(arguments[0])", title)

    def test_search_without_a_server(self):
        self.open("index.html", SITE.as_uri() + "/")
        self.search("glossary", [])
        self.browser.switch_to.frame(self.browser.find_element("id", "MSearchResults"))
        self.wait("return [...document.querySelectorAll('a.SRSymbol')].some(a => a.offsetParent && a.textContent === 'Glossary')")

    def test_pages_fit(self):
        for page in WIDE:
            with self.subTest(page):
                self.open(page)
                self.wait("return document.readyState === 'complete'")
                self.assertLess(self.run_script("return document.getElementById('main-menu').offsetHeight"), 50,
                                "the menu has more than one line")
                content, shown = self.run_script("const shown = document.getElementById('doc-content');"
                                                 "return [shown.scrollWidth, shown.clientWidth]")
                self.assertLessEqual(content, shown, "the page is wider than the window")
                self.assertEqual(self.run_script("return [...document.images].filter(i => !i.naturalWidth).map(i => i.src)"), [])

    def test_comments_for_tools_are_left_out(self):
        found = [path.name for path in SITE.rglob("*.html") if re.search("NOLINT", path.read_text())]
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], testRunner=runner.Runner)
