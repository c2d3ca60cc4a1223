"""Programs of documents; examples_test.py runs them."""

import cbt


def loop(base: str, target: str) -> int:
    changed = 0
    # [loop]
    with cbt.open_source(target, "image", base=base) as cursor:
        for batch in cursor:
            changed += int(batch.lengths.sum())
    # [/loop]
    return changed
