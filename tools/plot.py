# SPDX-License-Identifier: Apache-2.0
"""Grouped bar charts as SVG text, without any package. Used by demo.py and bench/smoke.py."""

from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 60, 60
COLOURS = ["#8a8f98", "#2f7ed8", "#5ab55e", "#d9822b"]


def figure(value):
    """Three digits, and all of those before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _round_up(value):
    """The next 1, 2 or 5 times a power of ten."""
    scale = 1.0
    while scale < value:
        for step in (1, 2, 5):
            if scale * step >= value:
                return scale * step
        scale *= 10
    while scale / 10 >= value:
        scale /= 10
    for step in (0.1, 0.2, 0.5, 1):
        if scale * step >= value:
            return scale * step
    return scale


def grouped_bars(title, unit, groups, series):
    """`groups`: labels along the axis; `series`: (name, one value per group or None)."""
    top_value = _round_up(max(v for _, values in series for v in values if v is not None) or 1)
    plot_width, plot_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
           f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="24" font-size="16">{escape(title)}</text>']
    for i in range(5):
        y = TOP + plot_height * i / 4
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" '
                   'stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">'
                   f'{top_value * (4 - i) / 4:g}</text>')
    out.append(f'<text x="{LEFT - 8}" y="{TOP - 14}" text-anchor="end">{escape(unit)}</text>')
    group_width = plot_width / len(groups)
    bar_width = group_width * 0.7 / len(series)
    for g, label in enumerate(groups):
        start = LEFT + group_width * (g + 0.15)
        out.append(f'<text x="{LEFT + group_width * (g + 0.5):.1f}" y="{HEIGHT - BOTTOM + 20}" '
                   f'text-anchor="middle">{escape(str(label))}</text>')
        for s, (_, values) in enumerate(series):
            if values[g] is None:
                continue
            height = plot_height * values[g] / top_value
            x, y = start + s * bar_width, TOP + plot_height - height
            out.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar_width * 0.9:.1f}" '
                       f'height="{height:.1f}" fill="{COLOURS[s % len(COLOURS)]}"/>')
            out.append(f'<text x="{x + bar_width * 0.45:.1f}" y="{y - 4:.1f}" text-anchor="middle" '
                       f'font-size="11">{figure(values[g])}</text>')
    x = LEFT
    for s, (name, _) in enumerate(series):
        out.append(f'<rect x="{x}" y="{HEIGHT - 24}" width="12" height="12" '
                   f'fill="{COLOURS[s % len(COLOURS)]}"/>')
        out.append(f'<text x="{x + 18}" y="{HEIGHT - 13}">{escape(name)}</text>')
        x += 40 + 8 * len(name)
    out.append("</svg>\n")
    return "\n".join(out)
