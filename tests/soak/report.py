"""How load tests say what they found."""

import os
import sys


def figure(name, value):
    print(f"figure: {name} {value}", flush=True)


def check(condition, text):
    """Ends the program with `text`, after its name, unless the condition holds."""
    if not condition:
        sys.exit(f"{os.path.splitext(os.path.basename(sys.argv[0]))[0]}: {text}")
