# SPDX-License-Identifier: Apache-2.0
"""wire/command.h, wire/commands.h, wire/commands/FAMILY.h, wire/command_info.cc and the table of
docs/wire-format.md."""
import re
import textwrap

from . import commands
from .text import COLUMNS, head

SOURCE = "api/commands/*.toml by api/generate.py"
TABLE_BEGIN = "<!-- commands: made by api/generate.py --wire-format; do not edit -->"
TABLE_END = "<!-- end of commands -->"


def comment(text, indent=""):
    """`text` as // lines; nothing for no text."""
    if not text:
        return ""
    lines = textwrap.wrap(text, COLUMNS - len(indent) - 3, break_long_words=False)
    return "".join(f"{indent}// {line}\n" for line in lines)


# ---- command.h, commands/FAMILY.h and commands.h --------------------------------------------------

def headers(protocol):
    """{file name: text}: what commands have in common, a header for each family, and one that has them all."""
    families = sorted(set(protocol.families.values()))
    made = {"wire/command.h": common_header(protocol), "wire/commands.h": all_commands(protocol, families)}
    made.update((f"wire/commands/{family}.h", family_header(protocol, family)) for family in families)
    return made


def _by_number(entries):
    return sorted(entries.values(), key=lambda c: c.number)


def common_header(protocol):
    kinds = "".join(f", k{name.capitalize()}" for name in protocol.objects)
    out = [head("The commands of the ring: client to worker, in program order, executed in that\n"
                "order by the session's executor. What those of all families (commands/*.h) have\n"
                "in common. docs/wire-format.md explains them.", True, SOURCE),
           '#include <cstdint>\n\n#include "wire/record.h"\n\nnamespace openmps::wire {\n\n'
           "enum class Opcode : uint16_t {\n  kPadding = 0,  // fills the ring up to its end\n"]
    out += [f"  k{c.name} = {c.number},\n" for c in _by_number(protocol.commands)]
    out += ["};\n\n// What becomes of held work (worker/work/backlog.h) when a command comes, by its kHeld.\n"
            "enum class Held : uint8_t {\n"]
    out += [comment(doc, "  ") + f"  k{name.capitalize()},\n" for name, doc in commands.HELD.items()]
    out += ["};\n\n// How the journal keeps a command (worker/core/journal.h), by its kKeeping; one without that is not kept.\n"
            "enum class Keeping : uint8_t {\n"]
    out += [comment(doc, "  ") + f"  k{name.capitalize()},\n" for name, doc in commands.KEPT.items() if name != "no"]
    out.append(f"""}};

enum class Object : uint8_t {{ kDevice{kinds} }};
// What a command does with what it names; kMake: new, unless it exists; kIn: the stream it
// belongs to.
enum class Effect : uint8_t {{ kNone, kNew, kMake, kEnd, kUse, kChange, kIn }};

// Some types. with(visit): visit(Type()...), its result.
template <typename... Types>
struct TypeList {{
  template <typename Visit>
  static constexpr auto with(Visit&& visit) {{
    return visit(Types()...);
  }}
}};

// A field with the id of an object, or with the number of a device. Optional: 0 is none.
template <auto field, Object object, Effect effect, bool optional = false>
struct Name {{
  static constexpr auto kField = field;
  static constexpr Object kObject = object;
  static constexpr Effect kEffect = effect;
  static constexpr bool kOptional = optional;
}};
// The Names in a command's own fields, in their order.
template <typename Command>
struct NamesOf : TypeList<> {{}};

// A field, or a text of the tail, that tells one setting of an object from another.
template <auto field>
struct Key {{
  static constexpr auto kField = field;
}};
// The Keys of a command that sets something.
template <typename Command>
struct KeysOf : TypeList<> {{}};

// The field that counts one part of a tail, the part, and how much of it there may be.
template <auto counted_by, auto part, uint32_t limit>
struct Part {{
  static constexpr auto count = counted_by;
  static constexpr auto span = part;
  static constexpr uint32_t most = limit;
}};
// The Parts of a tail.
template <typename Tail>
struct PartsOf : TypeList<> {{}};

}}  // namespace openmps::wire
""")
    return "".join(out)


def family_header(protocol, family):
    out = []
    for name, (value, doc) in protocol.of_family(family, protocol.constants).items():
        number = f"{value}u" if value < 1 << 20 else f"0x{value:x}u"
        out.append(f"{comment(doc)}inline constexpr uint32_t {name} = {number};\n")
    for name, (doc, values) in protocol.of_family(family, protocol.enums).items():
        out.append(f"\n{comment(doc)}enum class {name} : uint32_t {{\n")
        out += [f"  {value}," + (f"  // {text}" if text else "") + "\n" for value, text in values]
        out.append("};\n")
    out.append("\n")
    out += [_struct(protocol, s) for s in protocol.of_family(family, protocol.structs).values()]
    by_number = _by_number(protocol.of_family(family, protocol.commands))
    out += [_command(protocol, c) for c in by_number]
    out += [_names(by_number), _keys(by_number), _parts(by_number), _ranges(by_number), "}  // namespace openmps::wire\n"]
    body = "".join(out)
    others = "".join(f'#include "wire/commands/{other}.h"\n' for other in _needs(protocol, family, body))
    return (head(f"Commands: api/commands/{family}.toml. All structs are plain data without holes; what\n"
                 "follows one is its Tail.", True, SOURCE)
            + '#include <cstdint>\n#include <span>\n#include <string_view>\n\n#include "cuda/abi.h"\n'
            '#include "cuda/status.h"\n#include "wire/command.h"\n' + others + '#include "wire/extent.h"\n'
            '#include "wire/layout.h"\n#include "wire/limits.h"\n#include "wire/record.h"\n\n'
            "namespace openmps::wire {\n\n" + body.lstrip("\n"))


def _needs(protocol, family, body):
    """The other families whose constants, enumerations or structures the text has."""
    words = set(re.findall(r"\w+", re.sub(r"//.*", "", body)))
    return sorted({protocol.families[name] for kind in (protocol.constants, protocol.enums, protocol.structs)
                   for name in kind if name in words} - {family})


def all_commands(protocol, families):
    return (head("The commands of all families: for who has to do with each of them.", True, SOURCE)
            + "".join(f'#include "wire/commands/{family}.h"\n' for family in families)
            + "\nnamespace openmps::wire {\n\n// For whatever is done with each of them.\n"
            "template <typename... Types>\nstruct CommandList {};\nusing Commands = CommandList<"
            + ", ".join(c.name for c in _by_number(protocol.commands)) + ">;\n\n}  // namespace openmps::wire\n")


def _struct(protocol, structure):
    return (f"{comment(structure.doc)}struct {structure.name} {{\n"
            f"{_members(protocol, structure)}}};\n{_size_check(structure.name, structure)}\n")


def _size_check(name, structure):
    return f"static_assert(sizeof({name}) == {structure.bytes});\n"


def _members(protocol, structure, indent="  "):
    out, end = [], 0
    for f in structure.fields:
        array = f"[{f.count}]" if f.count else ""
        plain = f.type in commands.SCALARS or f.type in protocol.objects
        default = " = {}" if array or not plain else " = 0"
        if f.type in protocol.enums:
            default = f" = {f.type}{{}}"
        out.append(f"{comment(f.doc, indent)}{indent}{protocol.cpp_type(f.type)} {f.name}{array}"
                   f"{default};\n")
        end = f.offset + protocol.layout(f.type)[0] * (f.count or 1)
    if structure.bytes > end:
        out.append(f"{indent}uint8_t reserved[{structure.bytes - end}] = {{}};\n")
    return "".join(out)


def _command(protocol, c):
    out = [f"// {c.number}.\n{comment(c.doc)}struct {c.name} {{\n"
           f"  static constexpr Opcode kOpcode = Opcode::k{c.name};\n"
           + ("  static constexpr bool kAnsweredLater = true;\n" if c.later else "")
           + (f"  static constexpr Held kHeld = Held::k{c.held.capitalize()};\n" if c.held != "first" else "")
           + _keeping(c) + _members(protocol, c)]
    if c.tail:
        out.append(_tail_struct(protocol, "Tail", c.tail))
    if c.reply:
        out.append(f"  struct Reply {{\n{_members(protocol, c.reply, '    ')}  }};\n")
    if c.reply_tail:
        out.append(_tail_struct(protocol, "ReplyTail", c.reply_tail))
    out.append("};\n" + _size_check(c.name, c))
    if c.reply:
        out.append(_size_check(f"{c.name}::Reply", c.reply))
    return "".join(out) + "\n"


def _keeping(c):
    """How the journal keeps the command; nothing for one that it does not keep."""
    if c.kept == "no":
        return ""
    out = f"  static constexpr Keeping kKeeping = Keeping::k{c.kept.capitalize()};\n"
    if c.stays:
        out += f'  static constexpr const char* kStays = "{c.stays}";\n'
    if c.outlives:
        out += "  static constexpr bool kOutlives = true;\n"
    return out


def _keys(by_number):
    """The fields that tell settings apart, for worker/session/dispatch.cc; a field with a tail's text comes last."""
    out = []
    for c in by_number:
        fields = {f.name for f in c.fields}
        out.append(_list_of("KeysOf", c.name, [f"Key<&{c.name}::{name}>" if name in fields
                                               else f"Key<&{c.name}::Tail::{name}>" for name in c.kept_by]))
    return "".join(out)


def _tail_struct(protocol, name, parts):
    members = []
    for p in parts:
        kind = "std::string_view" if p.type == "text" else \
            f"std::span<const {'unsigned char' if p.type == 'u8' else protocol.cpp_type(p.type)}>"
        members.append(f"    {kind} {p.name} = {{}};\n")
    return f"  struct {name} {{\n" + "".join(members) + "  };\n"


def _names(by_number):
    """Which objects and devices a command names, for worker/session/dispatch.cc."""
    out = []
    for c in by_number:
        names = [f"Name<&{c.name}::{f.name}, Object::k{f.type.capitalize()}, "
                 f"Effect::k{f.effect.capitalize() or 'Use'}{', true' if f.optional else ''}>"
                 for f in c.fields if f.effect or f.type == "device"]
        out.append(_list_of("NamesOf", c.name, names))
    return "".join(out)


def _parts(by_number):
    """Which field counts which part, for wire/codec.h."""
    out = []
    for c in by_number:
        for counting, tail, parts in ((c.name, f"{c.name}::Tail", c.tail),
                                      (f"{c.name}::Reply", f"{c.name}::ReplyTail", c.reply_tail)):
            out.append(_list_of("PartsOf", tail, [f"Part<&{counting}::{p.count}, &{tail}::{p.name}, "
                                                  f"{p.most or 'kMaxReplyBytes'}>" for p in parts]))
    return "".join(out)


def _list_of(template, argument, types):
    """A specialisation that nobody pays for who does not ask for it."""
    if not types:
        return ""
    return (f"template <>\nstruct {template}<{argument}>\n    : TypeList<"
            + ",\n               ".join(types) + "> {};\n")


def _ranges(by_number):
    """visit_ranges() of commands that touch memory by addresses of their own."""
    out = []
    if any(c.reads or c.writes for c in by_number):
        out.append("\n// visit(address, bytes, writes, role) for each range of memory that the command touches by an\n"
                   "// address of its own; 0 bytes: none. ~0 bytes where the numbers overflow.\n")
    for c in by_number:
        if not c.reads and not c.writes:
            continue
        names = "|".join(f.name for f in c.fields)
        out.append(f"template <typename Visit>\nStatus visit_ranges(const {c.name}& c, Visit&& visit) {{\n")
        for writes, made in ((True, c.writes), (False, c.reads)):
            for address, size in made:
                size = re.sub(rf"(?<![\w.])({names})\b", r"c.\1", size)
                out.append(f"  OPENMPS_RETURN_IF_ERROR(visit(c.{address}, {size}, "
                           f"{_flag(writes)}, \"{address.split('.')[0]}\"));\n")
        out.append("  return Status();\n}\n")
    return "".join(out) + "\n"


# ---- command_info.cc -----------------------------------------------------------------------------

def info(protocol):
    out = [head("What is known of each command, for logs, traces and tests.", source=SOURCE),
           '#include "wire/command_info.h"\n\n#include "wire/commands.h"\n\nnamespace openmps::wire {\nnamespace {\n\n']
    for name, (_, values) in protocol.enums.items():
        out.append(f"[[maybe_unused]] const char* name_of_{name}(uint32_t value) {{\n"
                   "  switch (static_cast<" + name + ">(value)) {\n"
                   + "".join(f'    case {name}::{v}: return "{v}";\n' for v, _ in values)
                   + "    default: return nullptr;\n  }\n}\n\n")
    ordered = sorted(protocol.commands.values(), key=lambda c: c.number)
    for c in ordered:
        for name, fields in ((f"k{c.name}Fields", c.fields), (f"k{c.name}Reply", _reply_fields(c))):
            rows = "".join(_field_rows(protocol, fields))
            if rows:
                out.append(f"constexpr FieldInfo {name}[] = {{\n{rows}}};\n\n")
    out.append("constexpr CommandInfo kCommands[] = {\n")
    for c in ordered:
        fields = f"k{c.name}Fields" if c.fields else "{}"
        reply = f"k{c.name}Reply" if _reply_fields(c) else "{}"
        out.append(f'    {{Opcode::k{c.name}, "{c.name}", {c.bytes}, '
                   f"{c.reply.bytes if c.reply else 0}, {_flag(c.waits)}, {_flag(c.later)}, "
                   f"{fields}, {reply}}},\n")
    out.append("};\n\n}  // namespace\n\nstd::span<const CommandInfo> commands() { return kCommands; }\n\n"
               "const CommandInfo* info_of(Opcode opcode) {\n  switch (opcode) {\n")
    out += [f"    case Opcode::k{c.name}: return &kCommands[{i}];\n" for i, c in enumerate(ordered)]
    out.append("    default: return nullptr;\n  }\n}\n\n}  // namespace openmps::wire\n")
    return "".join(out)


def _reply_fields(command):
    return command.reply.fields if command.reply else ()


def _flag(text):
    return "true" if text else "false"


def _field_rows(protocol, fields, prefix="", offset=0):
    """One row per field; those of structures inside by dotted names."""
    for f in fields:
        if f.type in protocol.structs:
            yield from _field_rows(protocol, protocol.structs[f.type].fields, f"{prefix}{f.name}.",
                                   offset + f.offset)
            continue
        size, _ = protocol.layout(f.type)
        kind = {"u8": "kBytes", "u32": "kUnsigned", "device": "kUnsigned", "u64": "kUnsigned",
                "i32": "kSigned", "f32": "kFloat", "address": "kAddress"}.get(f.type, "kBytes")
        if f.type in protocol.objects or f.type in protocol.enums:
            kind = "kUnsigned"
        enumerator = f"name_of_{f.type}" if f.type in protocol.enums else "nullptr"
        effect = f"Effect::k{f.effect.capitalize() or 'None'}"
        thing = f'"{f.type}"' if f.type in protocol.objects else "nullptr"
        yield (f'    {{"{prefix}{f.name}", {offset + f.offset}, {size}, {f.count or 1}, '
               f"FieldKind::{kind}, {effect}, {_flag(f.optional)}, {thing}, {enumerator}}},\n")


# ---- docs/wire-format.md -------------------------------------------------------------------------

def table(protocol):
    out = [TABLE_BEGIN, "",
           f"{len(protocol.commands)} commands. Of its objects a command makes some (new), ends some, uses or changes some, and works in a "
           "stream (in). What follows the struct is in brackets.", "",
           "| number | command | objects | fields | reply | |", "|---:|---|---|---|---|---|"]
    for c in sorted(protocol.commands.values(), key=lambda c: c.number):
        objects = ", ".join(f"{f.effect} {f.name}{' or 0' if f.optional else ''}"
                            for f in c.fields if f.effect)
        fields = ", ".join(f"`{f.name}`" for f in c.fields if not f.effect)
        tail = ", ".join(f"`{p.name}`" for p in c.tail)
        fields += f" [{tail}]" if tail else ""
        reply = ", ".join(f"`{f.name}`" for f in c.reply.fields) if c.reply else ""
        more = ", ".join(f"`{p.name}`" for p in c.reply_tail)
        reply += f" [{more}]" if more else ""
        touched = [f"Writes `{a}`." for a, _ in c.writes] + [f"Reads `{a}`." for a, _ in c.reads]
        text = " ".join([c.doc] + touched + ([f"May wait {c.waits}."] if c.waits else [])
                        + ([f"Answered {c.later}."] if c.later else []))
        out.append(f"| {c.number} | `{c.name}` | {objects} | {fields} | {reply} | {text} |")
    out += ["", "Objects: " + "; ".join(f"{name}: {doc}" for name, doc in
                                         sorted(protocol.objects.items())) + ".", "", TABLE_END]
    return "\n".join(out)


def page(path, protocol):
    """The page with its table made anew."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    begin, end = text.index(TABLE_BEGIN), text.index(TABLE_END)
    return text[:begin] + table(protocol) + text[end + len(TABLE_END):]
