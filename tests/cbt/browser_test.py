"""The page of `cbtctl chain show --html` in a real browser, compared with the maps."""

import itertools
import json
import os
import random
import re
import shutil
import subprocess
import unittest
from concurrent import futures
from datetime import datetime, timezone

import support
from map_test import GRANULARITY, roaring32
from support import CbtTest, run

MARK = '</script><b a="1">&amp;\u00fc'  # a name with mark-up


def start_browser():
    """A headless Chromium without network access that records the page's console."""
    from selenium import webdriver  # pylint: disable=import-outside-toplevel
    from selenium.webdriver.chrome.service import Service  # pylint: disable=import-outside-toplevel

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions",
                     "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1400,900",
                     "--force-device-scale-factor=1"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)
    browser.set_script_timeout(600)
    return browser


def numbers_of(text):
    return [int(number.replace(",", "")) for number in re.findall(r"(?<![\d.])[\d,]*\d(?= bytes)", text)]


class BrowserTest(CbtTest):
    @classmethod
    def setUpClass(cls):
        if not (shutil.which("chromium") and shutil.which("chromedriver")):
            raise unittest.SkipTest("no chromium")
        cls.browser = start_browser()
        cls.addClassCleanup(cls.browser.quit)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.check_console)

    def errors(self):
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] in ("SEVERE", "ERROR")]

    def check_console(self):
        self.assertEqual(self.errors(), [])

    def make(self, days, capacities, volume="vol", names=None, chain="history.chain", times=None):
        """A chain: the map to each snapshot but the first has the blocks of a day."""
        names = names or [f"s{i}" for i in range(len(days) + 1)]
        folder = self.path(chain)
        self.ok("chain", "create", folder, "--volume", volume, "--snapshot", names[0], "--capacity", capacities[0])

        def convert(day):
            raw, path = self.path(f"{chain}.{day}.roaring"), self.path(f"{chain}.{day}.cbm")
            with open(raw, "wb") as file:
                file.write(roaring32(days[day - 1], False))
            self.ok("map", "convert", raw, "--from", "roaring32", "--capacity", capacities[day], "--block-size", GRANULARITY,
                    "--output", path, "--volume-name", volume, "--base-name", names[day - 1], "--target-name", names[day])
            return path

        with futures.ThreadPoolExecutor(4) as pool:
            paths = list(pool.map(convert, range(1, len(days) + 1)))
        if times:
            for path, time in zip(paths, times):
                self.ok("chain", "append", folder, path, "--time", time)
        else:
            self.ok("chain", "append", folder, *paths)
        return folder

    def open(self, chain):
        page = self.path("page.html")
        self.ok("chain", "show", chain, "--rows", 1, "--html", page)
        self.browser.get(f"file://{page}")
        self.assertEqual(self.browser.execute_script("return performance.getEntriesByType('resource').length"), 0)
        return page

    def script(self, text, *arguments):
        return self.browser.execute_script(text, *arguments)

    def text(self, name):
        return self.script("return document.getElementById(arguments[0]).textContent", name)

    def layout(self):
        return {key: float(value) for key, value in self.script(
            "return {...document.getElementById('picture').dataset}").items()}

    def pointer(self, *places, click=False):
        """Moves the real pointer to places of the canvas, relative to its upper left corner."""
        from selenium.webdriver.common.action_chains import ActionChains  # pylint: disable=import-outside-toplevel

        canvas = self.browser.find_element("id", "picture")
        chain = ActionChains(self.browser, duration=0)
        for x, y in places:
            chain.move_to_element_with_offset(canvas, round(x - canvas.rect["width"] / 2), round(y - canvas.rect["height"] / 2))
            if click:
                chain.click()
        chain.perform()

    def keys(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains  # pylint: disable=import-outside-toplevel

        self.script("document.getElementById('view').focus()")
        ActionChains(self.browser, duration=0).send_keys(*keys).perform()

    def answers(self, pairs):
        """{(base, target): (least, most, text)}: the page's answers when rows are picked with the
        keyboard.
        """
        found = self.script("""
            const view = document.getElementById("view"), picked = document.getElementById("picked");
            const press = (key, times) => {
              for (; times > 0; --times) view.dispatchEvent(new KeyboardEvent("keydown", { key }));
            };
            return arguments[0].map(([base, target]) => {
              press("Escape", 1);
              press("Home", 1);
              press("ArrowDown", base);
              press("Enter", 1);
              press("ArrowDown", target - base);
              press("Enter", 1);
              return [picked.dataset.least, picked.dataset.most, picked.textContent];
            });""", pairs)
        return {tuple(pair): (int(least), int(most), text) for pair, (least, most, text) in zip(pairs, found)}

    def check_text(self, text, least, most):
        """The text agrees with the numbers."""
        if least == most:
            self.assertIn("exactly ", text)
            self.assertEqual(numbers_of(text), [least])
        else:
            self.assertRegex(text, "at least .* at most ")
            self.assertNotIn("exactly", text)
            self.assertEqual(numbers_of(text), [least, most])

    # The capacity is no multiple of a block, so the last block is cut.
    BLOCKS = 300
    CAPACITY = BLOCKS * GRANULARITY - 512

    def bytes_of(self, blocks):
        return sum(min((block + 1) * GRANULARITY, self.CAPACITY) - block * GRANULARITY for block in blocks)

    def some_days(self, count):
        days = []
        for _ in range(count):
            day = set()
            for _ in range(random.choice((0, 1, 4, 20))):
                begin = random.randrange(self.BLOCKS)
                day |= set(range(begin, min(self.BLOCKS, begin + random.choice((1, 2, 30)))))
            days.append(day)
        days[0] |= {0, self.BLOCKS - 1}
        return days

    def test_points_and_picks(self):
        days = self.some_days(15)
        chain = self.make(days, [self.CAPACITY] * 16, volume=MARK, times=["2026-01-01T00:00:00Z"] * 15)
        self.open(chain)
        self.assertEqual(self.text("title"), MARK)
        self.assertIn("16 snapshots, s0 to s15", self.text("summary"))
        layout = self.layout()
        cell = 2 * GRANULARITY  # 300 blocks in at most 256 columns
        columns = self.BLOCKS // 2

        def middle(row, column):
            return (layout["left"] + layout["width"] * (column + 0.5) / columns,
                    layout["head"] + layout["rowHeight"] * (row + 0.5))

        for row, column in [(1, 0), (1, columns - 1), *((random.randrange(1, 16), random.randrange(columns)) for _ in range(12))]:
            self.pointer(middle(row, column))
            text = self.text("hover")
            end = min((column + 1) * cell, self.CAPACITY)
            self.assertIn(f"s{row}, taken 2026-01-01 00:00 UTC: ", text)
            self.assertIn(f" From {column * cell:,} to {end:,} (", text)
            changed = self.bytes_of(days[row - 1] & {2 * column, 2 * column + 1})
            self.assertEqual(numbers_of(text), [self.bytes_of(days[row - 1]), changed], text)
            self.assertIn(f"since s{row - 1}.", text)
        self.pointer(middle(0, 3))
        self.assertRegex(self.text("hover"), "^s0, taken .* UTC: the oldest snapshot")

        # The later row may be picked first.
        for first, second in ((2, 9), (15, 0), (7, 8)):
            self.keys("\ue00c")
            self.pointer(middle(first, 5), middle(second, 9), click=True)
            want = self.bytes_of(set().union(*days[min(first, second):max(first, second)]))
            self.assertRegex(self.text("picked"), f"^s{min(first, second)} to s{max(first, second)}: exactly ")
            self.assertEqual(numbers_of(self.text("picked")), [want])

        for (base, target), (least, most, text) in self.answers(list(itertools.combinations(range(16), 2))).items():
            self.assertEqual(least, most, (base, target))
            self.assertEqual(least, self.bytes_of(set().union(*days[base:target])), (base, target))
            self.check_text(text, least, most)

    def test_cells_have_the_colours_of_the_legend(self):
        days = self.some_days(12)
        self.open(self.make(days, [self.CAPACITY] * 13))
        layout, columns = self.layout(), self.BLOCKS // 2
        shown = self.browser.execute_async_script("""
            const [layout, rows, columns, done] = arguments;
            const legend = [...document.querySelectorAll("#legend i")].map((box) => getComputedStyle(box).backgroundColor);
            const context = document.getElementById("picture").getContext("2d");
            // A busy machine paints later than two frames after it was asked.
            let tries = 0;
            const read = () => {
              const shades = [];
              for (let row = 1; row < rows; ++row) {
                shades.push([]);
                for (let column = 0; column < columns; ++column) {
                  const [r, g, b] = context.getImageData(
                    Math.floor(layout.left + layout.width * (column + 0.5) / columns),
                    Math.floor(layout.head + layout.rowHeight * (row + 0.5)), 1, 1).data;
                  shades[row - 1].push(legend.indexOf(`rgb(${r}, ${g}, ${b})`));
                }
              }
              if (shades.flat().includes(-1) && ++tries < 100) setTimeout(read, 50);
              else done(shades);
            };
            requestAnimationFrame(read);""", layout, 13, columns)
        for row, day in enumerate(days):
            want = []
            for column in range(columns):
                changed = len(day & {2 * column, 2 * column + 1})
                want.append((0, 5, 6)[changed])  # none, up to 50 %, up to 100 %
            # The last cell is cut: one of its blocks is more than half of it, the other less.
            last = self.bytes_of(day & {self.BLOCKS - 2, self.BLOCKS - 1}) / (2 * GRANULARITY - 512)
            want[-1] = 0 if last == 0 else 5 if last <= 0.5 else 6
            self.assertEqual(shown[row], want, f"row {row + 1}")

    def test_keys_alone(self):
        days = self.some_days(60)
        self.open(self.make(days, [self.CAPACITY] * 61))
        up, down, left, right, home, end, escape, enter = "\ue013\ue015\ue012\ue014\ue011\ue010\ue00c\ue007"
        self.browser.find_element("tag name", "body").send_keys("\t\t")
        self.assertEqual(self.script("return document.activeElement.id"), "view", "the Tab key reaches the picture")
        self.keys(end)
        self.assertIn("s60", self.text("hover"))
        self.assertGreater(self.script("return document.getElementById('view').scrollTop"), 0)
        self.keys(enter, up, up, right, right, left)
        self.assertIn("s58", self.text("hover"))
        self.assertIn(" From 0 to 8,192 (", self.text("hover"))
        self.keys(enter)
        self.assertEqual(numbers_of(self.text("picked")), [self.bytes_of(days[58] | days[59])])
        self.keys(escape)
        self.assertIn("Click two rows", self.text("picked"))
        self.keys(home, down)
        self.assertIn("s1", self.text("hover"))
        self.assertEqual(self.script("return document.getElementById('view').scrollTop"), 0)
        self.browser.find_element("id", "find").send_keys("S44", enter)
        self.assertIn("s44", self.text("hover"))

    def inexact_answers(self, chain, names):
        """How many of the page's answers have two bounds; each must hold the chain's own answer."""
        self.open(chain)
        inexact = 0
        for (base, target), (least, most, text) in self.answers(list(itertools.combinations(range(len(names)), 2))).items():
            answer = self.ok("chain", "delta", chain, names[base], names[target], "--format", "ndjson")
            want = json.loads(answer.splitlines()[-1])["bytes"]
            self.assertTrue(least <= want <= most, f"{names[base]} to {names[target]}: {least} {want} {most}")
            self.check_text(text, least, most)
            inexact += least != most
        return inexact

    def test_volumes_that_were_resized_are_never_under_reported(self):
        inexact = 0
        for number in range(4):
            sizes = [GRANULARITY * random.choice((100, 150, 200)) - random.choice((0, 512)) for _ in range(4)]
            capacities = [size for size in sizes for _ in range(random.randint(1, 3))]
            days = [{random.randrange(capacity // GRANULARITY) for _ in range(random.randrange(20))} for capacity in capacities[1:]]
            chain = self.make(days, capacities, chain=f"{number}.chain")
            names = [f"s{i}" for i in range(len(capacities))]
            for _ in range(random.randrange(3)):
                # Data that was cut off in between is no longer visible, but still changed.
                self.ok("chain", "remove", chain, names.pop(random.randrange(1, len(names) - 1)))
            with self.subTest(capacities=capacities, names=names):
                inexact += self.inexact_answers(chain, names)
        self.assertGreater(inexact, 0)

    def test_a_volume_that_shrank_in_the_middle_of_a_block_grew_and_shrank_again(self):
        # The row to s2 reports what was cut off from the start of block 9; the delta to s3 does not.
        small, large = 10 * GRANULARITY - 512, 15 * GRANULARITY
        chain = self.make([{1}, {2}, {3}], [large, small, large, small])
        self.ok("chain", "remove", chain, "s1")
        self.assertGreater(self.inexact_answers(chain, ["s0", "s2", "s3"]), 0)

    def test_a_page_with_too_little_room_rounds_up(self):
        count, blocks = 60, 1 << 16
        days = [{random.randrange(blocks) for _ in range(2000)} for _ in range(count)]
        chain, page = self.make(days, [blocks * GRANULARITY] * (count + 1)), self.path("page.html")
        with open(page, "wb") as file:
            subprocess.run([os.environ["CBT_SMALL_PAGE"], chain, "30000"], stdout=file, check=True)
        self.browser.get(f"file://{page}")
        pairs = list(itertools.combinations(range(count + 1), 2))
        inexact = 0
        for (base, target), (least, most, text) in self.answers([(7, 8), (0, count), *random.sample(pairs, 60)]).items():
            want = len(set().union(*days[base:target])) * GRANULARITY
            self.assertTrue(least <= want <= most, (base, target, least, want, most))
            if target == base + 1:
                self.assertEqual(least, most)
            self.check_text(text, least, most)
            inexact += least != most
        self.assertGreater(inexact, 5)
        # Cells are selected the same way.
        self.keys("\ue011")
        layout, columns = self.layout(), 256 // 16
        for column in range(columns):
            self.pointer((layout["left"] + layout["width"] * (column + 0.5) / columns, layout["head"] + layout["rowHeight"] * 1.5))
            text = self.text("hover")
            begin, end = (int(number.replace(",", "")) for number in re.search(r" From ([\d,]+) to ([\d,]+) ", text).groups())
            self.assertEqual(end - begin, blocks * GRANULARITY // columns)
            changed = sum(begin <= block * GRANULARITY < end for block in days[0]) * GRANULARITY
            self.assertIn(": at most ", text)
            self.assertTrue(changed <= numbers_of(text)[-1] <= changed * 1.25 + GRANULARITY, text)
            self.assertEqual(begin, column * blocks * GRANULARITY // columns)

    def test_one_snapshot_alone(self):
        chain = self.path("alone.chain")
        self.ok("chain", "create", chain, "--volume", "v", "--snapshot", "only", "--capacity", "1M")
        self.open(chain)
        self.assertIn("1 snapshot, only to only", self.text("summary"))
        self.assertIn("only one snapshot", self.text("picked"))

    def test_light_and_dark(self):
        chain = self.make(self.some_days(3), [self.CAPACITY] * 4)
        seen = set()
        for scheme in ("light", "dark"):
            self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
                {"name": "prefers-color-scheme", "value": scheme}]})
            self.open(chain)
            page, text = self.script("const style = getComputedStyle(document.body); return [style.backgroundColor, style.color]")
            light = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (page, text)]
            self.assertEqual(light[0] > light[1], scheme == "light", (page, text))
            seen.add(page)
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        self.assertEqual(len(seen), 2)

    def test_the_console_is_watched(self):
        """Control for the other tests: they detect an error, and what the page's policy forbids."""
        page = self.open(self.make(self.some_days(1), [self.CAPACITY] * 2))
        with open(page, encoding="utf-8") as file:
            text = file.read()
        for planted in ("<script>missing();</script>", '<img src="http://127.0.0.1:9/x.png">', '<script src="x.js"></script>'):
            with open(page, "w", encoding="utf-8") as file:
                file.write(text.replace("</body>", planted + "</body>"))
            self.browser.get(f"file://{page}")
            self.assertNotEqual(self.errors(), [], planted)

    def test_dates_are_those_of_the_snapshots(self):
        times = [datetime.fromtimestamp(seconds, timezone.utc).isoformat() for seconds in (1767225600, 86399, 4102444800)]
        chain = self.make(self.some_days(3), [self.CAPACITY] * 4, times=times)
        text = self.ok("chain", "show", chain)
        want = {match[2]: match[1] for match in re.finditer(r"(?m)^(\d{4}-\d\d-\d\d \d\d:\d\d) +(s\d)", text)}
        self.assertEqual(len(want), 4)
        self.assertIn(datetime.fromtimestamp(4102444800, timezone.utc).strftime("%Y-%m-%d %H:%M"), want.values())
        self.open(chain)
        self.keys("\ue011")
        for row in range(1, 4):
            self.keys("\ue015")
            self.assertIn(f"s{row}, taken {want[f's{row}']} UTC", self.text("hover"))


class OutputTest(CbtTest):
    """Where the page is written, without a browser."""

    def chain(self):
        chain = self.path("h.chain")
        self.ok("chain", "create", chain, "--volume", "v", "--snapshot", "a", "--capacity", "1M")
        return chain

    def test_stdout_holds_one_document(self):
        chain = self.chain()
        page = self.ok("chain", "show", chain, "--html", "-")
        self.assertTrue(page.startswith("<!DOCTYPE html>") and page.endswith("</html>\n"))
        svg = self.path("out.svg")
        self.assertEqual(self.ok("chain", "show", chain, "--html", "-", "--svg", svg), page)
        self.assertTrue(os.path.exists(svg))
        drawn = self.ok("chain", "show", chain, "--svg", "-")
        self.assertTrue(drawn.startswith("<svg ") and drawn.endswith("</svg>\n"))
        self.assertIn("stdout already", self.fails(2, "chain", "show", chain, "--svg", "-", "--html", "-"))
        self.assertFalse(os.path.exists("-"))

    def test_no_page_of_a_damaged_chain_nor_in_it(self):
        chain, path = self.chain(), self.path("out.html")
        self.fails(2, "chain", "show", chain, "--html", os.path.join(chain, "CHAIN"))
        self.ok("chain", "verify", chain)
        raw, good = self.path("raw"), self.path("1.cbm")
        with open(raw, "wb") as file:
            file.write(roaring32({1, 2}, False))
        self.ok("map", "convert", raw, "--from", "roaring32", "--capacity", "1M", "--block-size", GRANULARITY,
                "--output", good, "--volume-name", "v", "--base-name", "a", "--target-name", "b")
        self.ok("chain", "append", chain, good)
        name = next(name for name in os.listdir(chain) if name.startswith("map-"))
        with open(os.path.join(chain, name), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"\x55")
        for place in (path, "-"):
            result = run("chain", "show", chain, "--html", place)
            self.assertNotEqual(result.code, 0)
            self.assertEqual(result.stdout, "")
        self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    support.main()
