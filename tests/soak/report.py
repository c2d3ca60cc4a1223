"""Reports the findings of load tests."""

import os
import sys


def figure(name, value):
    print(f"figure: {name} {value}", flush=True)


def check(condition, text):
    """Exits with the program's name and `text` unless the condition holds."""
    if not condition:
        sys.exit(f"{os.path.splitext(os.path.basename(sys.argv[0]))[0]}: {text}")
