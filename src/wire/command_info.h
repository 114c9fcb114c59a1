// SPDX-License-Identifier: Apache-2.0
// A description of each command by its opcode: for logs, traces and tests, which get commands as
// bytes. The table is generated from the commands' description. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "wire/command.h"

namespace openmps::wire {

enum class FieldKind : uint8_t { kUnsigned, kSigned, kFloat, kAddress, kBytes };

// One field; those of structures inside are named "source.array".
struct FieldInfo {
  const char* name;
  uint16_t offset;
  uint16_t bytes;  // of one element
  uint16_t count;
  FieldKind kind;
  Effect effect;       // on the object that it names
  bool optional;       // 0 names no object
  const char* object;  // "stream"; null: no object
  const char* (*enumerator)(
      uint32_t);  // null: no enumeration; returns null for a number that is no value of it
};

struct CommandInfo {
  Opcode opcode;
  const char* name;
  uint32_t bytes;        // of its struct
  uint32_t reply_bytes;  // of its reply's struct; 0: none
  bool waits;            // the executor may have to wait for others
  bool later;            // it may be answered after commands that come behind it
  std::span<const FieldInfo> fields;
  std::span<const FieldInfo> reply_fields;
};

// By number.
std::span<const CommandInfo> commands();
// Null for what is no command.
const CommandInfo* info_of(Opcode opcode);
// "Launch"; "" for what is no command.
const char* name_of(Opcode opcode);

// The fields by name. Bytes that only the peers understand, keys among them, are counted, not
// shown; what a payload lacks is "missing".
using Fields = std::vector<std::pair<const char*, std::string>>;
Fields fields_of(Opcode opcode, std::span<const unsigned char> payload);
// The fields of a command's reply. Nothing for an empty payload: a command that failed may have
// none.
Fields reply_fields_of(Opcode opcode, std::span<const unsigned char> payload);
// The stream that the command belongs to; 0: none.
Id stream_of(Opcode opcode, std::span<const unsigned char> payload);
// "Launch{stream=1, function=2, grid=[4,1,1], ...}", for people.
std::string text_of(const std::string& name, const Fields& fields);
std::string describe(Opcode opcode, std::span<const unsigned char> payload);

}  // namespace openmps::wire
