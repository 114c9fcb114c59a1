# SPDX-License-Identifier: Apache-2.0
"""Judges a run of tests/gpu and formats the result: the table at the end of `./dev gpu-test`, and the
table of docs/compatibility.md. Called by run_gpu.py, or by hand on the JSON of a run:

  report.py RUN.json [RUN.json...]              the table; later files replace cases of earlier ones
  report.py --page docs/compatibility.md RUN.json...   rewrites the page between its two marks
"""

import argparse
import json
import re
import sys
from pathlib import Path

BEGIN, END = "<!-- gpu-test: begin -->", "<!-- gpu-test: end -->"
BAD_VALUE = "differs"
GOOD = ("ok", "skipped")
SHOWN = 40  # failing tests that the table lists; the JSON has all
HINTS = 6    # lines of OPENMPS_DEBUG that the table shows for a program with failing tests
EXCEPTION = re.compile(r"^[\w.]*(Error|Exception|Empty|Expired)\b(:|$)")


def judge(native, openmps):
    """The verdict on one test from its results in both modes (None: not run in that mode).

    ok        passes behind OpenMPS (with the native value, where it has one)
    FAILED    passes natively but not behind OpenMPS, or with another value
    native    fails natively: says nothing about OpenMPS
    skipped   this machine cannot run it
    """
    reference = native or {"status": "ok"}
    if reference["status"] == "skipped":
        return "skipped", reference.get("detail", "")
    if reference["status"] != "ok":
        return "native", f"{reference['status']}: {last_line(reference)}"
    if openmps is None:
        return "ok", ""
    if openmps["status"] == "skipped":
        return "FAILED", "skipped only behind OpenMPS: " + openmps.get("detail", "")
    if openmps["status"] != "ok":
        return "FAILED", f"{openmps['status']}: {last_line(openmps)}"
    if native and native.get("value") != openmps.get("value"):
        return "FAILED", f"native {native.get('value')}, OpenMPS {openmps.get('value')}"
    return "ok", ""


def last_line(result):
    """The most telling line of a failure: the exception's own, else the last one."""
    lines = [line.strip() for line in result.get("detail", "").splitlines() if line.strip()]
    named = [line for line in lines if EXCEPTION.match(line)]
    return (named or lines or [""])[-1]


def verdicts(run):
    """{case: {test: (verdict, reason)}} of a run's JSON."""
    found = {}
    for title, modes in run["cases"].items():
        if "skipped" in modes:
            found[title] = {"(all)": ("skipped", modes["skipped"])}
            continue
        missing = [mode for mode in run.get("modes", modes) if mode not in modes]
        if missing:  # the run was stopped before
            found[title] = {"(all)": ("skipped", "not run: " + ", ".join(missing))}
            continue
        native = modes["native"]["results"] if "native" in modes else None
        openmps = modes["openmps"]["results"] if "openmps" in modes else None
        names = dict.fromkeys([*(native or {}), *(openmps or {})])
        # If a program does not even start natively, its tests say nothing about OpenMPS.
        no_start = (native or {}).get("(start)")
        found[title] = {
            name: judge(native.get(name, no_start) if native else None,
                        openmps.get(name, {"status": "not run"}) if openmps else None)
            for name in names}
    return found


def seconds(modes):
    return " / ".join(f"{modes[m]['seconds']:.0f}" for m in ("native", "openmps") if m in modes)


def rows(run):
    """One row per case: title, tests, passed natively, passed behind OpenMPS, verdict, seconds."""
    table = []
    for title, tests in verdicts(run).items():
        modes = run["cases"][title]
        count = {mode: sum(r["status"] == "ok" and not name.startswith("(")
                           for name, r in modes[mode]["results"].items())
                 for mode in ("native", "openmps") if mode in modes}
        kinds = [verdict for verdict, _ in tests.values()]
        if "FAILED" in kinds:
            verdict = f"{kinds.count('FAILED')} FAILED"
        elif "native" in kinds:
            verdict = "ok where native is"
        else:
            verdict = "skipped" if set(kinds) == {"skipped"} else "ok"
        total = sum(not name.startswith("(") for name in tests)
        table.append((title, str(total), str(count.get("native", "-")),
                      str(count.get("openmps", "-")), verdict, seconds(modes)))
    return table


HEADER = ("program", "tests", "native", "OpenMPS", "verdict", "seconds")


def text(run):
    """(table and failures as text, how many tests failed behind OpenMPS)."""
    table = [HEADER, *rows(run)]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
             for row in table]
    kinds = {"FAILED": [], "native": [], "skipped": [], "ok": []}
    for title, tests in verdicts(run).items():
        for name, (verdict, reason) in tests.items():
            kinds[verdict].append(f"  {title} {name}: {reason}")
    for kind, heading in (("FAILED", "fail behind OpenMPS"), ("native", "fail natively"),
                          ("skipped", "skipped")):
        if kinds[kind]:
            lines += ["", f"{len(kinds[kind])} {heading}:"] + kinds[kind][:SHOWN]
            if len(kinds[kind]) > SHOWN:
                lines.append(f"  and {len(kinds[kind]) - SHOWN} more, see the JSON")
    for title, hint in hints(run):
        lines += ["", f"what OpenMPS logged in {title}:"] + [f"  {line}" for line in hint]
    lines.append(f"\n{len(kinds['ok'])} passed, {len(kinds['FAILED'])} failed, "
                 f"{len(kinds['skipped']) + len(kinds['native'])} skipped")
    return "\n".join(lines), len(kinds["FAILED"])


def logged(modes):
    """OpenMPS's log lines of a program, without counts and lines that differ from run to run."""
    lines = modes.get("openmps", {}).get("debug", [])
    return [re.sub(r" \(\d+ x\)$", "", line) for line in lines
            if not line.startswith(("the daemon at", "session "))]


def hints(run):
    """For each program with failing tests: its OPENMPS_DEBUG lines that no program without failures has."""
    flawed = {title for title, tests in verdicts(run).items()
              if any(verdict == "FAILED" for verdict, _ in tests.values())}
    usual = {line for title, modes in run["cases"].items() if title not in flawed
             for line in logged(modes)}
    for title in flawed:
        unusual = [line for line in logged(run["cases"][title]) if line not in usual]
        if unusual:
            yield title, unusual[:HINTS]


def page(run):
    """The part of docs/compatibility.md that is generated."""
    lines = [f"{run['machine']}; {run['date']}.", "",
             "| program | tests | pass natively | pass behind OpenMPS | verdict |",
             "|---|---|---|---|---|"]
    lines += ["| " + " | ".join(row[:5]) + " |" for row in rows(run)]
    failures = [f"- `{title}` {name}: {reason[:300]}"
                for title, tests in verdicts(run).items()
                for name, (verdict, reason) in tests.items() if verdict == "FAILED"]
    native = [f"- `{title}` {name}: {reason[:300]}"
              for title, tests in verdicts(run).items()
              for name, (verdict, reason) in tests.items() if verdict == "native"]
    if failures:
        lines += ["", "Failures behind OpenMPS:", "", *failures]
    if native:
        lines += ["", "Tests that fail natively on that machine too:", "", *native]
    return "\n".join(lines)


def merged(paths):
    """Several runs as one: cases of a later run replace those of earlier ones."""
    run = {"cases": {}}
    for path in paths:
        later = json.loads(Path(path).read_text())
        run = {**later, "cases": {**run["cases"], **later["cases"]}}
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--page", type=Path)
    parser.add_argument("runs", nargs="+", type=Path)
    args = parser.parse_args()
    run = merged(args.runs)
    if not args.page:
        print(text(run)[0])
        return 0
    old = args.page.read_text()
    if BEGIN not in old or END not in old:
        print(f"{args.page} has no lines {BEGIN} and {END}", file=sys.stderr)
        return 1
    head, tail = old.split(BEGIN)[0], old.split(END)[1]
    args.page.write_text(f"{head}{BEGIN}\n{page(run)}\n{END}{tail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
