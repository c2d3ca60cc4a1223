"""Exponents of costs, their table and their picture."""

import dataclasses
import math
import statistics

LIMIT = 1.05


@dataclasses.dataclass
class Curve:
    """What an operation costs at each amount of work."""

    operation: str
    grows: str  # what the work is counted in
    work: list
    seconds: list  # of processor, without what the operation costs with no work
    fixed: float = 0  # that cost
    mib: list = None  # of memory, where it grows with the work


def exponent(work, cost):
    """The slope of the logarithms, by least squares: 1 where the cost is in proportion to the work."""
    x, y = [math.log(value) for value in work], [math.log(max(value, 1e-9)) for value in cost]
    middle_x, middle_y = statistics.mean(x), statistics.mean(y)
    return (sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y)) / sum((a - middle_x) ** 2 for a in x))


def last_step(work, cost):
    """The same from the last but one amount to the last: a part that grows faster shows there first."""
    return exponent(work[-2:], cost[-2:])


def shown(seconds):
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            break
    return f"{seconds * factor:.3g} {unit}"


def amount(value):
    for size, unit in ((10 ** 6, "M"), (10 ** 3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return str(value)


def table(curves):
    lines = ["| operation | grows | cost of each amount | with no work | exponent | last step |",
             "| --- | --- | --- | --- | --- | --- |"]
    for curve in curves:
        costs = ", ".join(f"{amount(work)}: {shown(cost)}" for work, cost in zip(curve.work, curve.seconds))
        lines.append(f"| {curve.operation} | {curve.grows} | {costs} | {shown(curve.fixed) if curve.fixed else '-'} | "
                     f"{exponent(curve.work, curve.seconds):.2f} | {last_step(curve.work, curve.seconds):.2f} |")
        if curve.mib:
            held = ", ".join(f"{amount(work)}: {mib:.3g} MiB" for work, mib in zip(curve.work, curve.mib))
            lines.append(f"| {curve.operation}, memory | {curve.grows} | {held} | - | {exponent(curve.work, curve.mib):.2f} | "
                         f"{last_step(curve.work, curve.mib):.2f} |")
    return "\n".join(lines) + "\n"


def above(curves):
    """Those that grow faster than the work."""
    return [curve for curve in curves if exponent(curve.work, curve.seconds) > LIMIT]


COLOURS = ["#2a7fd4", "#e0892b", "#3a9a5b", "#b0529b", "#8a6d3b", "#c8443c", "#5b6bbf", "#7a7a7a"]


def picture(curves):
    """Cost against work, both logarithmic and relative to the first amount. The dashed line is
    proportion; what is below it grows more slowly."""
    side, left, top = 300, 40, 18
    least, most = math.log10(0.5), math.log10(200)

    def x(ratio):
        return left + side * math.log10(ratio) / 2

    def y(ratio):
        return top + side * (most - max(math.log10(ratio), least)) / (most - least)

    height = max(top + side + 30, top + 15 * len(curves) + 10)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + side + 330} {height}" '
           'font-family="sans-serif" font-size="10">',
           "<style>text{fill:#444}@media(prefers-color-scheme:dark){text{fill:#ccc}}</style>"]
    for times in (1, 10, 100):
        out += [f'<path d="M{x(times):.1f} {top}V{top + side}M{left} {y(times):.1f}H{left + side}" '
                'stroke="#9a9a9a" stroke-width="0.3"/>',
                f'<text x="{x(times):.1f}" y="{top + side + 13}" text-anchor="middle">{times}</text>',
                f'<text x="{left - 6}" y="{y(times) + 3:.1f}" text-anchor="end">{times}</text>']
    out += [f'<text x="{left + side / 2}" y="{top + side + 27}" text-anchor="middle">times the work</text>',
            f'<text x="4" y="{top - 6}">times the cost</text>',
            f'<path d="M{x(1)} {y(1):.1f}L{x(100)} {y(100):.1f}" stroke="#666" stroke-dasharray="4 3"/>']
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        dash = ("", ' stroke-dasharray="6 2"', ' stroke-dasharray="2 2"')[number // len(COLOURS) % 3]
        places = [f"{x(work / curve.work[0]):.1f} {y(cost / curve.seconds[0]):.1f}" for work, cost in zip(curve.work, curve.seconds)]
        out.append(f'<path d="M{"L".join(places)}" fill="none" stroke="{colour}"{dash}/>')
        at = top + 8 + 15 * number
        name = f"{curve.operation.replace('`', '')}: {exponent(curve.work, curve.seconds):.2f}"
        out += [f'<path d="M{left + side + 16} {at - 3}h18" stroke="{colour}"{dash}/>',
                f'<text x="{left + side + 40}" y="{at}">{name}</text>']
    return "\n".join(out + ["</svg>"]) + "\n"
