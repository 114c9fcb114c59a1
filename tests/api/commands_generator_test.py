# SPDX-License-Identifier: Apache-2.0
"""Tests of the commands' part of api/generate.py: what a small description makes, errors of malformed ones, the
table of the page."""
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "api"))
from generator import commands, emit_commands  # noqa: E402
from generator.description import DescriptionError  # noqa: E402

GOOD = """[cuda]
CUthing = [12, 4]
[object]
stream = "a stream"
[constant]
kMost = [8, "Enough."]
[enum]
Kind = ["kOne", "kTwo: the other"]
[struct.Pair]
doc = "Two."
fields = ["u64 a", "u32 b"]
[Work]
number = 3
kept = "set kind"
doc = "Works."
fields = ["in stream stream", "Kind kind", "address source", "u64 bytes: of it", "u32 count"]
tail = ["Pair pairs[count <= kMost]"]
reply = ["u32 text_bytes"]
reply_tail = ["text text[text_bytes]"]
reads = ["source: bytes"]
waits = "for others"
[Idle]
number = 1
kept = "no"
held = "beside"
doc = "Nothing."
"""


def load_all(texts):
    """The protocol of {family: text}."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for family, text in texts.items():
            paths.append(os.path.join(folder, f"{family}.toml"))
            with open(paths[-1], "w", encoding="utf-8") as file:
                file.write(text)
        return commands.load(paths)


def load(text):
    return load_all({"work": text})


class LayoutTest(unittest.TestCase):
    def test_offsets_and_padding(self):
        protocol = load(GOOD)
        work = protocol.commands["Work"]
        self.assertEqual([f.offset for f in work.fields], [0, 4, 8, 16, 24])
        self.assertEqual((work.bytes, protocol.structs["Pair"].bytes, protocol.commands["Idle"].bytes),
                         (32, 16, 8))
        self.assertEqual(protocol.format(work), "IIQQI4x")
        self.assertEqual(protocol.format(protocol.commands["Idle"]), "8x")

    def test_headers_have_structure_parts_and_ranges(self):
        made = emit_commands.headers(load(GOOD))
        self.assertEqual(sorted(made), ["wire/command.h", "wire/commands.h", "wire/commands/work.h"])
        header = "".join(made.values())
        for line in ("  kIdle = 1,\n  kWork = 3,\n", "  Kind kind = Kind{};\n",
                     "  uint8_t reserved[4] = {};\n  struct Tail {\n",
                     "    std::span<const Pair> pairs = {};\n", "    std::string_view text = {};\n",
                     "static_assert(sizeof(Work) == 32);\nstatic_assert(sizeof(Work::Reply) == 8);\n",
                     "PartsOf<Work::Tail>\n    : TypeList<Part<&Work::count, &Work::Tail::pairs, kMost>> {};\n",
                     "NamesOf<Work>\n    : TypeList<Name<&Work::stream, Object::kStream, Effect::kIn>> {};\n",
                     'visit(c.source, c.bytes, false, "source")',
                     "Opcode::kIdle;\n  static constexpr Held kHeld = Held::kBeside;\n",
                     "using Commands = CommandList<Idle, Work>;\n"):
            self.assertIn(line, header)

    def test_a_family_includes_those_whose_types_it_has(self):
        more = """[Other]
number = 2
kept = "no"
doc = "Has a Pair and no Idle."
fields = ["Pair pair"]
"""
        made = emit_commands.headers(load_all({"work": GOOD, "more": more}))
        self.assertIn('#include "wire/commands/work.h"\n', made["wire/commands/more.h"])
        self.assertNotIn("wire/commands/more.h", made["wire/commands/work.h"])
        self.assertNotIn("struct Idle", made["wire/commands/more.h"])
        self.assertIn('#include "wire/commands/more.h"\n#include "wire/commands/work.h"\n', made["wire/commands.h"])
        self.assertIn("CommandList<Idle, Other, Work>", made["wire/commands.h"])

    def test_info_has_effects(self):
        info = emit_commands.info(load(GOOD))
        self.assertIn('{"stream", 0, 4, 1, FieldKind::kUnsigned, Effect::kIn, false, "stream", nullptr}',
                      info)
        self.assertIn('{Opcode::kWork, "Work", 32, 8, true, false,', info)


class PageTest(unittest.TestCase):
    def test_table_takes_its_place(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.md")

            def write(text):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                return emit_commands.page(path, load(GOOD))

            made = write(f"before\n{emit_commands.TABLE_BEGIN}\nold\n{emit_commands.TABLE_END}\nafter\n")
            self.assertTrue(made.startswith("before\n") and made.endswith("\nafter\n"))
            self.assertIn("| 3 | `Work` | in stream | `kind`, `source`, `bytes`, `count` [`pairs`] "
                          "| `text_bytes` [`text`] | Works. Reads `source`. May wait for others. |", made)
            self.assertEqual(write(made), made)


# name of the case: (what is replaced in GOOD, by what, "line: message")
MALFORMED = {
    "hole": ('"address source", ', '"u32 odd", "address source", ',
             "16: Work: field 'address source' leaves a hole of 4 bytes before it"),
    "number_twice": ("number = 1", "number = 3", "23: Idle: number 3 is Work's"),
    "number_missing": ("number = 1\n", "", "22: Idle: 'number' is missing or no opcode"),
    "doc_missing": ('doc = "Nothing."\n', "", "22: Idle: 'doc' is missing"),
    "field_form": ('"Kind kind"', '"Kind kind here"', "16: Work: field 'Kind kind here' is not "
                   "'[new|make|end|use|change|in[?] ]type name[[count]][: doc]'"),
    "type": ('"Kind kind"', '"Sort kind"', "16: Work: field 'Sort kind': there is no type 'Sort'"),
    "object_without_effect": ('"in stream stream"', '"stream stream"', "16: Work: field "
                              "'stream stream': an object, and nothing else, is made (new, or make "
                              "unless it exists), destroyed (end), used (use), changed (change) or "
                              "worked in (in)"),
    "held": ('held = "beside"', 'held = "soon"', "25: Idle: held: one of first, own, beside, left"),
    "kept_missing": ('kept = "no"\n', "", "22: Idle: 'kept' is missing or not one of no, made, set, range, graph, stays"),
    "kept_without_reason": ('"no"', '"stays"', "24: Idle: kept: 'stays' has a reason, 'set' has fields, others "
                            "have neither"),
    "kept_field": ('"set kind"', '"set colour"', "14: Work: kept: there is no field 'colour'"),
    "kept_range": ('"no"', '"range"', "24: Idle: kept: a range has 'address' and 'bytes'"),
    "field_twice": ('"u32 count"', '"u32 kind"', "16: Work: field 'u32 kind': the name is used twice"),
    "tail_without_count": ("[count <=", "[number <=", "17: Work: tail 'Pair pairs[number <= kMost]': "
                           "there is no u32 'number' to count it"),
    "tail_without_limit": (" <= kMost", "", "17: Work: tail 'Pair pairs[count]' has no limit"),
    "limit": ("<= kMost]", "<= kAll]",
              "17: Work: 'Pair pairs[count <= kAll]': there is no constant 'kAll'"),
    "too_long": ("[8,", "[5000,",
                 "17: Work: with its tail it may have 80032 bytes, more than 65528"),
    "unaligned_tail": ('tail = ["Pair', 'tail = ["text t[count <= kMost]", "Pair', "17: Work: tail 'Pair "
                       "pairs[count <= kMost]' would not be aligned behind what comes before it"),
    "range": ('"source: bytes"', '"target: bytes"',
              "20: Work: range 'target: bytes' is not 'address field: bytes'"),
    "unknown_key": ("waits =", "colour =", "21: Work: unknown key 'colour'"),
    "constant": ('[8, "Enough."]', "8", "6: kMost: a constant is [number, doc]"),
    "enum_value": ('"kOne"', '"one"', "8: Kind: value 'one' is not 'kName[: doc]'"),
    "tail_of_no_reply": ('reply = ["u32 text_bytes"]\n', "",
                         "18: Work: a reply's tail needs a reply that counts it"),
}


class MalformedTest(unittest.TestCase):
    pass


def _case(old, new, expected):
    def test(self):
        self.assertIn(old, GOOD)
        with self.assertRaises(DescriptionError) as caught:
            load(GOOD.replace(old, new, 1))
        self.assertEqual(str(caught.exception).split("work.toml:")[1], expected)
    return test


for _name, _arguments in MALFORMED.items():
    setattr(MalformedTest, f"test_{_name}", _case(*_arguments))


if __name__ == "__main__":
    unittest.main()
