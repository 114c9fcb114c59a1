# SPDX-License-Identifier: Apache-2.0
"""Reads api/commands/*.toml into a Protocol and refuses, with file and line, what is malformed.

docs/wire-format.md is the prose for the format; this file is its definition. Layouts are computed here:
structures have no holes, so what a client writes is all that there is, and tails are aligned.
"""
import dataclasses
import os
import re

from .description import DescriptionError, Lines, read_toml

# name in a description: (type in C++, bytes, format of Python's struct)
SCALARS = {
    "u8": ("uint8_t", 1, "B"), "u32": ("uint32_t", 4, "I"), "i32": ("int32_t", 4, "i"),
    "u64": ("uint64_t", 8, "Q"), "f32": ("float", 4, "f"), "device": ("uint32_t", 4, "I"),
    "address": ("uint64_t", 8, "Q"),
}
MAX_TAILED_BYTES = 64 * 1024 - 8  # of a record without its header (src/wire/record.h)
MAX_REPLY_BYTES = 4096 - 16       # src/wire/layout.h
TAIL_ALIGNMENT = 8                # a tail or a reply begins aligned for whatever it holds

FIELD = re.compile(r"^(?:(?P<effect>new|make|end|use|change|in)(?P<optional>\?)? )?(?P<type>\w+) (?P<name>\w+)"
                   r"(?:\[(?P<count>\w+)\])?(?:: (?P<doc>.+))?$")
TAIL = re.compile(r"^(?P<type>\w+) (?P<name>\w+)\[(?P<count>\w+)(?: <= (?P<most>\w+))?\]$")
RANGE = re.compile(r"^(?P<address>[\w.]+): (?P<bytes>.+)$")
VALUE = re.compile(r"^(?P<name>k[A-Z]\w*)(?:: (?P<doc>.+))?$")

# What becomes of work that the worker holds back (worker/work/backlog.h) when a command comes.
HELD = {
    "first": "It is submitted first: the command ends, changes or waits for what it may use or bring about",
    "own": "It is submitted first if it records an event, launches a function or a graph that the command uses or changes",
    "beside": "The command and it need not know of each other",
    "left": "It stays, but what waits for values is submitted: the command may wait in the executor",
}

# How the journal keeps a command that was executed with success, so that another worker can make the session
# again (worker/session/journal.h). An entry goes with the first of the objects that the command names; `set` has
# fields behind it, `stays` a reason.
KEPT = {
    "no": "It leaves nothing to be made again: work, questions, and what ends objects",
    "made": "It makes objects",
    "set": "It sets what the fields name: a later one replaces it",
    "range": "It says what is at a range of addresses, until the range is unmapped",
    "graph": "It describes an executable graph: kept once GraphInstantiate or GraphUpdate has used the description",
    "stays": "It makes what can't be made again: while it exists the session can't move, for the reason",
}

KEYS = {
    "object": {}, "cuda": {}, "constant": {}, "enum": {"values": list, "doc": str},
    "struct": {"doc": str, "fields": list},
    "command": {"number": int, "doc": str, "fields": list, "tail": list, "reply": list,
                "reply_tail": list, "reads": list, "writes": list, "waits": str, "later": str,
                "held": str, "kept": str, "outlives": bool},
}


@dataclasses.dataclass(frozen=True)
class Field:
    effect: str     # new, make, end, use, change, in: what the command does with the object; or ""
    optional: bool  # 0 names none
    type: str
    name: str
    count: int | None  # of an array
    doc: str
    offset: int = 0


@dataclasses.dataclass(frozen=True)
class Part:
    """One array of a tail: `count` is a field of the structure before it, `most` its limit."""
    type: str
    name: str
    count: str
    most: str | None


@dataclasses.dataclass
class Structure:
    name: str
    doc: str
    fields: tuple
    bytes: int = 0
    alignment: int = 1


@dataclasses.dataclass
class Command(Structure):
    number: int = 0
    tail: tuple = ()
    reply: Structure | None = None
    reply_tail: tuple = ()
    reads: tuple = ()   # of (field with an address, expression of C++ over fields: bytes)
    writes: tuple = ()
    waits: str = ""
    later: str = ""
    held: str = "first"  # one of HELD
    kept: str = ""       # one of KEPT
    kept_by: tuple = ()  # of `set`: fields, or `name`, the text of the tail
    stays: str = ""      # of `stays`: why
    outlives: bool = False  # its entry stays when what it uses ends


@dataclasses.dataclass
class Protocol:
    cuda: dict = dataclasses.field(default_factory=dict)       # name: (bytes, alignment)
    objects: dict = dataclasses.field(default_factory=dict)    # name: doc
    constants: dict = dataclasses.field(default_factory=dict)  # name: (value, doc)
    enums: dict = dataclasses.field(default_factory=dict)      # name: (doc, ((value, doc), ...))
    structs: dict = dataclasses.field(default_factory=dict)
    commands: dict = dataclasses.field(default_factory=dict)
    families: dict = dataclasses.field(default_factory=dict)   # name of any of these: that of its file

    def of_family(self, family, entries):
        """Those of `entries`, one of the dictionaries above, that the family's file describes."""
        return {name: entry for name, entry in entries.items() if self.families[name] == family}

    def layout(self, type_name):
        """(bytes, alignment) of a type."""
        if type_name in SCALARS:
            return SCALARS[type_name][1], SCALARS[type_name][1]
        if type_name in self.enums or type_name in self.objects:
            return 4, 4
        if type_name in self.cuda:
            return self.cuda[type_name]
        return self.structs[type_name].bytes, self.structs[type_name].alignment

    def knows(self, type_name):
        return any(type_name in names for names in
                   (SCALARS, self.enums, self.objects, self.cuda, self.structs))

    def cpp_type(self, type_name):
        if type_name in SCALARS:
            return SCALARS[type_name][0]
        return "Id" if type_name in self.objects else type_name

    def format(self, structure):
        """The structure for Python's struct, little-endian, with its padding; CUDA's are bytes."""
        text, end = "", 0
        for field in structure.fields:
            size, _ = self.layout(field.type)
            if field.type in SCALARS:
                code = SCALARS[field.type][2]
            elif field.type in self.structs:
                code = self.format(self.structs[field.type])
            else:
                code = "I" if field.type not in self.cuda else f"{size}s"
            times = field.count or 1
            text += f"{size * times}s" if field.type == "u8" and field.count else code * times
            end += size * times
        return text + (f"{structure.bytes - end}x" if structure.bytes > end else "")


def load(paths):
    """The protocol of all files; what one names may be in another."""
    protocol = Protocol()
    tables = []
    for path in paths:
        shown, text, content = read_toml(path)
        lines = Lines(text, r"(?:\w+\.)?(\w+)")
        for name, table in content.items():
            kind = name if name in KEYS and name != "command" else "command"
            if not isinstance(table, dict):
                raise DescriptionError(shown, lines.key("", name), f"'{name}' is outside of any table")
            entries = {name: table} if kind == "command" else table
            tables += [(kind, entry, value, shown, lines) for entry, value in entries.items()]
    for wanted in ("cuda", "object", "constant", "enum", "struct", "command"):
        for kind, name, table, path, lines in tables:
            if kind == wanted:
                _Reader(protocol, path, lines, kind, name).read(table)
                protocol.families[name] = os.path.basename(path).removesuffix(".toml")
    return protocol


class _Reader:
    """Reads one table into the protocol."""

    def __init__(self, protocol, path, lines, kind, name):
        self.protocol, self.path, self.lines = protocol, path, lines
        self.kind, self.name = kind, name

    def fail(self, message, near=""):
        table = self.name if self.kind in ("struct", "command") else self.kind
        line = self.lines.text(table, near) if near else self.lines.table(table)
        raise DescriptionError(self.path, line, f"{self.name}: {message}")

    def read(self, table):
        if any(self.name in known for known in vars(self.protocol).values()):
            self.fail("the name is used twice")
        if self.kind == "cuda":
            self.protocol.cuda[self.name] = tuple(table)
        elif self.kind == "object":
            self.protocol.objects[self.name] = table
        elif self.kind == "constant":
            if not isinstance(table, list) or [type(v) for v in table] != [int, str]:
                self.fail("a constant is [number, doc]", self.name)
            self.protocol.constants[self.name] = tuple(table)
        else:
            if isinstance(table, list):  # an enumeration without doc
                table = {"values": table}
            self.check_keys(table)
            getattr(self, f"read_{self.kind}")(table)

    def check_keys(self, table):
        keys = KEYS[self.kind]
        for key, value in table.items():
            if key not in keys:
                self.fail(f"unknown key '{key}'", key)
            if type(value) is not keys[key]:
                self.fail(f"'{key}' must be of type {keys[key].__name__}", key)
        if "doc" not in table and self.kind != "enum":
            self.fail("'doc' is missing")

    def read_enum(self, table):
        values = []
        for text in table["values"]:
            match = VALUE.match(text)
            if not match:
                self.fail(f"value '{text}' is not 'kName[: doc]'", text)
            values.append((match["name"], match["doc"] or ""))
        self.protocol.enums[self.name] = (table.get("doc", ""), tuple(values))

    def read_struct(self, table):
        made = Structure(self.name, table["doc"], ())
        self.lay_out(made, table["fields"])
        self.protocol.structs[self.name] = made

    def read_command(self, table):
        command = Command(self.name, table["doc"], ())
        command.number = table.get("number", 0)
        if not 0 < command.number < 0xffff:
            self.fail("'number' is missing or no opcode")
        for other in self.protocol.commands.values():
            if other.number == command.number:
                self.fail(f"number {command.number} is {other.name}'s", "number")
        self.lay_out(command, table.get("fields", []))
        command.tail = self.tail(command, table.get("tail", []), MAX_TAILED_BYTES)
        if "reply" in table:
            command.reply = Structure("Reply", "", ())
            self.lay_out(command.reply, table["reply"])
        elif "reply_tail" in table:
            self.fail("a reply's tail needs a reply that counts it", "reply_tail")
        if command.reply:
            command.reply_tail = self.tail(command.reply, table.get("reply_tail", []),
                                           MAX_REPLY_BYTES)
        command.reads = self.ranges(command, table.get("reads", []))
        command.writes = self.ranges(command, table.get("writes", []))
        command.waits, command.later = table.get("waits", ""), table.get("later", "")
        command.held = table.get("held", "first")
        if command.held not in HELD:
            self.fail(f"held: one of {', '.join(HELD)}", "held")
        self.read_kept(command, table)
        self.protocol.commands[self.name] = command

    def read_kept(self, command, table):
        kept, colon, reason = table.get("kept", "").partition(": ")
        command.kept, *fields = kept.split(" ")
        if command.kept not in KEPT:
            self.fail(f"'kept' is missing or not one of {', '.join(KEPT)}", "kept")
        if bool(colon) != (command.kept == "stays") or bool(fields) != (command.kept == "set"):
            self.fail("kept: 'stays' has a reason, 'set' has fields, others have neither", "kept")
        known = [f.name for f in command.fields] + [p.name for p in command.tail]
        for field in fields:
            if field not in known:
                self.fail(f"kept: there is no field '{field}'", "kept")
        if command.kept == "range" and not {"address", "bytes"} <= set(known + [
                f.name for f in (command.reply.fields if command.reply else ())]):
            self.fail("kept: a range has 'address' and 'bytes'", "kept")
        command.kept_by, command.stays = tuple(fields), reason
        command.outlives = table.get("outlives", False)

    def lay_out(self, structure, texts):
        """Fields one behind the other, at their alignment: a hole is refused."""
        fields, end = [], 0
        for text in texts:
            field = self.field(text)
            if field.name in [f.name for f in fields]:
                self.fail(f"field '{text}': the name is used twice", text)
            size, alignment = self.protocol.layout(field.type)
            if end % alignment:
                self.fail(f"field '{text}' leaves a hole of {-end % alignment} bytes before it", text)
            fields.append(dataclasses.replace(field, offset=end))
            end += size * (field.count or 1)
            structure.alignment = max(structure.alignment, alignment)
        # Whatever follows a command or a reply may need 8.
        if isinstance(structure, Command) or structure.name == "Reply":
            structure.alignment = TAIL_ALIGNMENT
            end = max(end, 1)  # nothing has no size in C++
        structure.fields = tuple(fields)
        structure.bytes = -(-end // structure.alignment) * structure.alignment

    def field(self, text):
        match = FIELD.match(text)
        if not match:
            self.fail(f"field '{text}' is not '[new|make|end|use|change|in[?] ]type name[[count]][: doc]'", text)
        if not self.protocol.knows(match["type"]):
            self.fail(f"field '{text}': there is no type '{match['type']}'", text)
        if (match["type"] in self.protocol.objects) != bool(match["effect"]):
            self.fail(f"field '{text}': an object, and nothing else, is made (new, or make unless "
                      "it exists), destroyed (end), used (use), changed (change) or worked in (in)", text)
        count = match["count"]
        if count is not None:
            count = int(count) if count.isdigit() else self.constant(count, text)
        return Field(match["effect"] or "", bool(match["optional"]), match["type"], match["name"],
                     count, match["doc"] or "")

    def constant(self, name, near):
        if name not in self.protocol.constants:
            self.fail(f"'{near}': there is no constant '{name}'", near)
        return self.protocol.constants[name][0]

    def tail(self, structure, texts, room):
        parts, longest = [], structure.bytes
        fields = {f.name: f for f in structure.fields}
        for text in texts:
            match = TAIL.match(text)
            if not match:
                self.fail(f"tail '{text}' is not 'type name[count field[ <= limit]]'", text)
            part = Part(match["type"], match["name"], match["count"], match["most"])
            if part.type != "text" and not self.protocol.knows(part.type):
                self.fail(f"tail '{text}': there is no type '{part.type}'", text)
            if part.count not in fields or fields[part.count].type != "u32":
                self.fail(f"tail '{text}': there is no u32 '{part.count}' to count it", text)
            size, alignment = (1, 1) if part.type == "text" else self.protocol.layout(part.type)
            before = [1 if p.type == "text" else self.protocol.layout(p.type)[0] for p in parts]
            if any(other % alignment for other in before):
                self.fail(f"tail '{text}' would not be aligned behind what comes before it", text)
            if part.most:
                longest += size * self.constant(part.most, text)
            elif structure.name != "Reply":
                self.fail(f"tail '{text}' has no limit", text)
            parts.append(part)
        if longest > room:
            self.fail(f"with its tail it may have {longest} bytes, more than {room}", texts[-1])
        return tuple(parts)

    def ranges(self, command, texts):
        made = []
        for text in texts:
            match = RANGE.match(text)
            if not match or match["address"].split(".")[0] not in [f.name for f in command.fields]:
                self.fail(f"range '{text}' is not 'address field: bytes'", text)
            made.append((match["address"], match["bytes"]))
        return tuple(made)
