# SPDX-License-Identifier: Apache-2.0
"""Tables, sentences and plots of what bench/experiments.py has found, in English and Chinese, and their place in
docs/experiments*.md: between `<!-- figures: EXPERIMENT -->` and `<!-- end of figures -->`. Python standard library
only."""

import re
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "tools")]
import plot  # noqa: E402

PAGES = {"en": "experiments.md", "zh": "experiments.zh-CN.md"}
MARKED = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
NOTHING = "–"
SIDES = {"native": ("native", "原生驱动"), "mps": ("NVIDIA's MPS", "NVIDIA MPS"), "openmps": ("OpenMPS", "OpenMPS")}
WAYS = {"ctrl_c": ("Ctrl-C", "Ctrl-C"), "kill": ("`kill`", "`kill`"), "kill_9": ("`kill -9`", "`kill -9`"),
        "command": ("`terminate_client`", "`terminate_client`"), "wild": ("wild access", "非法访问"),
        "trap": ("`trap`", "`trap`")}
SETTINGS = {"none": ("no limit", "不限"), "n": ("100/n", "100/n"), "half": ("100/(0.5 n)", "100/(0.5 n)"),
            "load": ("by load: 70, 10, 10, 10", "按负载：70、10、10、10")}
KINDS = {"streams": ("streams of one thread", "一个线程的多个流"), "threads": ("threads", "线程"),
         "processes": ("processes", "进程")}
# Of SIDES, after a figure.
ON_SIDES = {"native": "natively", "mps": "under NVIDIA's MPS", "openmps": "behind OpenMPS"}


def said(words, language):
    """words: (English, Chinese)."""
    return words[language == "zh"]


class Found:
    """The samples of a run: results.json."""

    def __init__(self, made, language):
        self.made, self.language, self.sides = made, language, made["sides"]

    def value(self, case, metric, side):
        samples = self.made["samples"].get(case, {}).get(side, {}).get(metric)
        return samples[-1] if samples else None

    def absence(self, case, side):
        """What a cell says that has no value."""
        reason = self.made["failures"].get(case, {}).get(side)
        if reason is not None:
            late = reason.split(": ", 1)[1]
            return late if re.fullmatch(r"> \d+ s", late) else said(("failed", "失败"), self.language)
        if side in self.made["left_out"].get(case, {}):
            return said(("left out", "未运行"), self.language)
        return NOTHING

    def cell(self, case, side, text, *metrics):
        """`text` with the values in its braces; what is missing is left out from the first one on."""
        values = [self.value(case, metric, side) for metric in metrics]
        if None in values:
            return self.absence(case, side)
        return text.format(*values)

    def row(self, label, case, text, *metrics):
        """`text`: (English, Chinese)."""
        return [label] + [self.cell(case, side, said(text, self.language), *metrics) for side in self.sides]

    def head(self, first):
        return [said(first, self.language)] + [said(SIDES[side], self.language) for side in self.sides]

    def sizes(self):
        return self.made["sizes"][self.sides[-1]]

    def series(self, columns):
        """For a plot: (side, values of the columns, which are (case, metric))."""
        return [(SIDES[side][0], [self.value(case, metric, side) for case, metric in columns]) for side in self.sides]


# --- tables: of each experiment, rows of cells --------------------------------------------------------------


def nbody_tables(found):
    return [[found.head(("programs", "程序数"))] + [
        found.row(str(count), "nbody", ("{:.2f} s, {:,.0f} GFLOP/s",) * 2, f"wall_s_{count}", f"gflops_{count}")
        for count in found.sizes()["nbody_programs"]]]


def lenet_tables(found):
    rows = [found.head(("programs", "程序数"))]
    for count in found.sizes()["lenet_programs"]:
        if found.made["driver"] == "softgpu":
            rows.append(found.row(str(count), "lenet", ("{:.1f} s",) * 2, f"wall_s_{count}"))
        else:
            rows.append(found.row(str(count), "lenet", ("{:.0f} steps/s each, {:.0f} together",
                                                        "每个 {:.0f} 步/秒，合计 {:.0f}"),
                                  f"each_{count}", f"all_{count}"))
    return [rows]


def bystanders_of(found, way, side):
    case = f"stop_{way}"
    if found.value(case, "unharmed", side) is None:
        return found.absence(case, side)
    parts = []
    for outcome, words in (("unharmed", ("unharmed", "不受影响")), ("told", ("told an error", "得到一个错误")),
                           ("lost", ("dead", "死亡")), ("wrong", ("WRONG RESULT", "结果错误"))):
        count = found.value(case, outcome, side)
        if count:
            parts.append(f"{count:.0f} {said(words, found.language)}")
    if found.value(case, "newcomer_ms", side) is None:
        parts.append(said(("a new program is not served", "新程序无法运行"), found.language))
    return said((", ", "，"), found.language).join(parts)


def stopping_tables(found):
    rows = [found.head(("four bystanders beside it", "旁边的四个程序"))]
    times = [found.head(("the stopped program's end; longest pause of a bystander; a new program's run",
                         "被停止的程序结束用时；旁边程序的最长停顿；新程序的运行用时"))]
    for way, words in WAYS.items():
        label = said(words, found.language)
        rows.append([label] + [bystanders_of(found, way, side) for side in found.sides])
        times.append([label] + ["; ".join(found.cell(f"stop_{way}", side, "{:.0f} ms", metric)
                                          for metric in ("ended_ms", "pause_ms", "newcomer_ms"))
                                if found.value(f"stop_{way}", "ended_ms", side) is not None
                                else found.absence(f"stop_{way}", side) for side in found.sides])
    return [rows, times]


def endless_tables(found):
    rows = [found.head(("", ""))]
    for name, kernel in (("endless", ("one endless thread", "一个不结束的线程")),
                         ("long", ("one block, 100 ms each, without a gap", "一个线程块，每次 100 ms，连续不断"))):
        for metric, text, words in (("util", "{:.0f} %", ("GPU-Util", "GPU-Util")),
                                    ("share", "{:.2f} %", ("share of the SMs' time by `openmps stat`",
                                                           "`openmps stat` 给出的 SM 时间占比")),
                                    ("p50", "{:.2f} x", ("requests beside it: p50, of alone",
                                                         "旁边请求的 p50，与单独运行之比"))):
            label = said(kernel, found.language) + said((": ", "："), found.language) + said(words, found.language)
            rows.append(found.row(label, "endless", (text,) * 2, f"{name}_{metric}"))
    return [rows]


def hyperq_columns(found):
    """The connections of the run, from its metrics."""
    metrics = {metric for of in found.made["samples"].get("hyperq", {}).values() for metric in of}
    return sorted({int(metric.rsplit("_", 1)[1]) for metric in metrics})


def hyperq_tables(found):
    columns = hyperq_columns(found)
    rows = [["", "", *map(str, columns)]]
    for kind, words in KINDS.items():
        for side in found.sides:
            cells = [found.cell("hyperq", side, "{:.1f}", f"{kind}_{column}") for column in columns]
            rows.append([said(words, found.language), said(SIDES[side], found.language), *cells])
    return [rows]


def sms_tables(found):
    return [[found.head(("SMs", "SM 数"))] + [
        found.row(str(count), "sms", ("{:.2f} of its speed ({:.0f} SMs told)", "速度的 {:.2f}（程序得知 {:.0f} 个 SM）"),
                  f"speed_{count}", f"told_{count}") for count in found.sizes()["sms"]]]


def percentages_tables(found):
    equal = [found.head(("four equal programs", "四个相同的程序"))]
    mixed = [found.head(("one large program, three small ones", "一个大程序，三个小程序"))]
    for setting, words in SETTINGS.items():
        label = said(words, found.language)
        if setting != "load":
            equal.append(found.row(label, "uniform", ("{:.2f} x one alone; slowest / fastest {:.2f}",
                                                      "单个程序的 {:.2f} 倍；最慢/最快 {:.2f}"),
                                   f"all_{setting}", f"least_{setting}"))
        mixed.append(found.row(label, "by_load", ("large {:.2f}, small {:.2f} of alone",
                                                  "大程序 {:.2f}，小程序 {:.2f}（与单独运行之比）"),
                               f"heavy_{setting}", f"light_{setting}"))
    return [equal, mixed]


# --- sentences ----------------------------------------------------------------------------------------------


def figures(found, of_side):
    """What of_side says of each side that has something to say: 'A natively, B behind OpenMPS'."""
    parts = [(side, text) for side in found.sides if (text := of_side(side))]
    if found.language == "zh":
        return "，".join(f"{SIDES[side][1]} {text}" for side, text in parts)
    return ", ".join(f"{text} {ON_SIDES[side]}" for side, text in parts)


def stated(found, english, chinese, of_side):
    made = figures(found, of_side)
    return said((english, chinese), found.language).format(made) if made else ""


def of_metric(found, case, metric, text):
    def of_side(side):
        value = found.value(case, metric, side)
        return None if value is None else text.format(value)
    return of_side


def nbody_sentence(found):
    most = max(found.sizes()["nbody_programs"])
    return stated(found, f"From the first start to the last end {most} programs take {{}}.",
                  f"{most} 个程序从第一个启动到最后一个结束：{{}}。", of_metric(found, "nbody", f"wall_s_{most}", "{:.2f} s"))


def lenet_sentence(found):
    most = max(found.sizes()["lenet_programs"])
    if found.made["driver"] == "softgpu":
        return stated(found, f"{most} programs take {{}}.", f"{most} 个程序用时：{{}}。",
                      of_metric(found, "lenet", f"wall_s_{most}", "{:.1f} s"))
    return stated(found, f"{most} programs together make, each second, {{}} steps.", f"{most} 个程序合计每秒步数：{{}}。",
                  of_metric(found, "lenet", f"all_{most}", "{:.0f}"))


def stopping_sentence(found):
    def of_side(side):
        counts = [[found.value(f"stop_{way}", outcome, side) or 0 for outcome in ("unharmed", "told", "lost", "wrong")]
                  for way in WAYS]
        whole = sum(map(sum, counts))
        return f"{sum(count[0] for count in counts):.0f}/{whole:.0f}" if whole else None

    return stated(found, "Unharmed over all ways: {}.", "各种方式合计，不受影响的程序：{}。", of_side)


def endless_sentence(found):
    return stated(found, "With one thread at work GPU-Util is {}.", "只有一个线程在运行时，GPU-Util 为：{}。",
                  of_metric(found, "endless", "endless_util", "{:.0f} %"))


def hyperq_sentence(found):
    columns = hyperq_columns(found)
    if not columns:
        return ""
    def of_side(side):
        few, many = (found.value("hyperq", f"streams_{column}", side) for column in (columns[0], columns[-1]))
        return None if None in (few, many) else f"{few:.1f} → {many:.1f}"

    return stated(found, f"Kernels of one thread's streams that run at once, with {columns[0]} → {columns[-1]} "
                  "connections: {}.", f"一个线程的多个流中同时运行的核函数数，连接数 {columns[0]} → {columns[-1]}：{{}}。", of_side)


def sms_sentence(found):
    def of_side(side):
        sizes = found.sizes()["sms"]
        speeds = [found.value("sms", f"speed_{count}", side) for count in sizes]
        return None if None in speeds else f"{min(speeds):.2f}–{max(speeds):.2f}"

    sizes = found.sizes()["sms"]
    return stated(found, f"Speed with {sizes[0]} to {sizes[-1]} SMs, of that with all: {{}}.",
                  f"使用 {sizes[0]} 到 {sizes[-1]} 个 SM 时的速度（与全部 SM 之比）：{{}}。", of_side)


def percentages_sentence(found):
    def of_side(side):
        before, after = (found.value("by_load", f"light_{name}", side) for name in ("none", "load"))
        return None if None in (before, after) else f"{before:.2f} → {after:.2f}"

    return stated(found, "Speed of the small programs, of alone, without limits → by load: {}.",
                  "小程序的速度（与单独运行之比），不限 → 按负载：{}。", of_side)


# --- plots: of each experiment, (name, title, unit, groups, series) ---------------------------------------------


def nbody_plots(found):
    counts = found.sizes()["nbody_programs"]
    bodies, steps = found.sizes()["nbody"]
    yield ("nbody", f"n-body {bodies} x {steps}, first start to last end", "s", [f"x{count}" for count in counts],
           found.series([("nbody", f"wall_s_{count}") for count in counts]))


def lenet_plots(found):
    counts = found.sizes()["lenet_programs"]
    metric, title, unit = (("wall_s", "LeNet, 20 steps, first start to last end", "s")
                           if found.made["driver"] == "softgpu" else ("all", "LeNet, all programs together", "steps/s"))
    yield ("lenet", title, unit, [f"x{count}" for count in counts],
           found.series([("lenet", f"{metric}_{count}") for count in counts]))


def stopping_plots(found):
    yield ("stopping", "Bystanders that are unharmed, of four", "", [words[0].strip("`") for words in WAYS.values()],
           found.series([(f"stop_{way}", "unharmed") for way in WAYS]))


def endless_plots(found):
    yield ("endless", "One thread: GPU-Util, and the part of the SMs' time", "%",
           ["endless: GPU-Util", "endless: SM share", "100 ms: GPU-Util", "100 ms: SM share"],
           found.series([("endless", f"{name}_{metric}") for name in ("endless", "long") for metric in ("util", "share")]))


def hyperq_plots(found):
    columns = hyperq_columns(found)
    for kind, words in KINDS.items():
        yield (f"hyperq-{kind}", f"Kernels that run at once, by connections: {words[0]}", "",
               list(map(str, columns)), found.series([("hyperq", f"{kind}_{column}") for column in columns]))


def sms_plots(found):
    counts = found.sizes()["sms"]
    yield ("sms", "A program's speed by its SMs, of that with all", "", [f"{count} SMs" for count in counts],
           found.series([("sms", f"speed_{count}") for count in counts]))


def percentages_plots(found):
    equal = [name for name in SETTINGS if name != "load"]
    yield ("percentages-equal", "Four equal programs together, of one alone", "x", [SETTINGS[name][0] for name in equal],
           found.series([("uniform", f"all_{name}") for name in equal]))
    yield ("percentages-mixed", "Small programs beside a large one: their speed, of alone", "",
           [SETTINGS[name][0].partition(":")[0] for name in SETTINGS],
           found.series([("by_load", f"light_{name}") for name in SETTINGS]))


# --- the page ---------------------------------------------------------------------------------------------------


# experiment: (title, tables, sentence, plots).
EXPERIMENTS = {
    "nbody": (("n-body", "n-body"), nbody_tables, nbody_sentence, nbody_plots),
    "lenet": (("LeNet", "LeNet"), lenet_tables, lenet_sentence, lenet_plots),
    "stopping": (("Stopping", "停止程序"), stopping_tables, stopping_sentence, stopping_plots),
    "percentages": (("Percentages", "百分比"), percentages_tables, percentages_sentence, percentages_plots),
    "sms": (("SMs by number", "按数量分配 SM"), sms_tables, sms_sentence, sms_plots),
    "hyperq": (("Hyper-Q", "Hyper-Q"), hyperq_tables, hyperq_sentence, hyperq_plots),
    "endless": (("GPU-Util", "GPU-Util"), endless_tables, endless_sentence, endless_plots),
}


def tables(experiment, made, language):
    return EXPERIMENTS[experiment][1](Found(made, language))


def plots(experiment, made):
    """(file name, SVG) of those with values."""
    for name, title, unit, groups, series in EXPERIMENTS[experiment][3](Found(made, "en")):
        if any(value is not None for _, values in series for value in values):
            yield f"{name}.svg", plot.grouped_bars(title, unit, groups, series)


def markdown(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def machine(made, language):
    of = made["machine"]
    parts = [of["device"]]
    if of["version"]:
        parts.append(said(("driver ", "驱动 "), language) + of["version"])
    parts.append(said(("{} host cores", "主机 {} 核"), language).format(of["cores"]))
    return said((", ", "，"), language).join(parts)


def block(experiment, made, language, folder):
    """The figures of one experiment, with its plots in that folder ("" or "experiments/")."""
    found = Found(made, language)
    _, make_tables, sentence, _ = EXPERIMENTS[experiment]
    cases = [case for case in [*made["failures"], *made["left_out"]] if belongs(case, experiment)]
    reasons = [f"- {case}, {said(SIDES[side], language)}: {reason.splitlines()[0]}"
               for kind in ("failures", "left_out") for case in dict.fromkeys(cases)
               for side, reason in made[kind].get(case, {}).items()]
    text = sentence(found)
    parts = [machine(made, language) + (said((": ", "："), language) + text if text else said((".", "。"), language))]
    parts += [f"![{name.removesuffix('.svg')}]({folder}{name})" for name, _ in plots(experiment, made)]
    parts += [markdown(rows) for rows in make_tables(found)]
    if reasons:
        parts.append("\n".join(reasons))
    return "\n\n".join(parts) + "\n"


CASES = {"percentages": ("uniform", "by_load"), "stopping": tuple(f"stop_{way}" for way in WAYS)}


def belongs(case, experiment):
    return case in CASES.get(experiment, (experiment,))


def write_plots(made, folder):
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for experiment in made["experiments"]:
        for name, text in plots(experiment, made):
            (folder / name).write_text(text, encoding="utf-8")
            paths.append(folder / name)
    return paths


def alone(made, folder):
    """A page of the figures alone; the plots are written into the folder."""
    write_plots(made, folder)
    sections = [f"## {EXPERIMENTS[experiment][0][0]}\n\n{block(experiment, made, 'en', '')}"
                for experiment in made["experiments"]]
    return f"# Experiments\n\n{made['seconds']:.0f} s.\n\n" + "\n".join(sections)


def filled(text, made, language):
    """The page with the figures of the run's experiments; the others stay."""
    def replace(match):
        begin, experiment, end = match.groups()
        if experiment not in made["experiments"]:
            return match[0]
        return f"{begin}\n{block(experiment, made, language, 'experiments/')}\n{end}"

    missing = set(made["experiments"]) - {match[2] for match in MARKED.finditer(text)}
    if missing:
        raise ValueError(f"the page has no place for {', '.join(sorted(missing))}")
    return MARKED.sub(replace, text)


def update(made, docs):
    """Puts a run's figures and plots into the documentation; returns what was written."""
    texts = {docs / name: filled((docs / name).read_text(encoding="utf-8"), made, language)
             for language, name in PAGES.items()}
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return [*texts, *write_plots(made, docs / "experiments")]
