// SPDX-License-Identifier: Apache-2.0
// Commands as text. See command_info.h.
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "wire/command_info.h"

namespace openmps::wire {
namespace {

std::string element(const FieldInfo& field, const unsigned char* data) {
  uint64_t bits = 0;
  memcpy(&bits, data, field.bytes);  // little-endian, as all that the driver runs on
  if (field.enumerator != nullptr) {
    if (const char* name = field.enumerator(static_cast<uint32_t>(bits))) return name;
  }
  char text[32];
  switch (field.kind) {
    case FieldKind::kSigned:
      std::snprintf(text, sizeof(text), "%d", static_cast<int32_t>(bits));
      break;
    case FieldKind::kFloat: {
      float value = 0;
      memcpy(&value, data, sizeof(value));
      std::snprintf(text, sizeof(text), "%g", static_cast<double>(value));
      break;
    }
    case FieldKind::kAddress: std::snprintf(text, sizeof(text), "0x%" PRIx64, bits); break;
    default: std::snprintf(text, sizeof(text), "%" PRIu64, bits); break;
  }
  return text;
}

std::string value_of(const FieldInfo& field, const unsigned char* data) {
  if (field.kind == FieldKind::kBytes) {
    return std::to_string(field.bytes * field.count) + " bytes";
  }
  if (field.count == 1) return element(field, data);
  std::string list;
  for (uint16_t i = 0; i < field.count; ++i) {
    list += i == 0 ? '[' : ',';
    list += element(field, data + i * field.bytes);
  }
  return list + "]";
}

Fields values_of(std::span<const FieldInfo> fields, std::span<const unsigned char> payload) {
  Fields values;
  for (const FieldInfo& field : fields) {
    const bool there = payload.size() >= size_t{field.offset} + field.bytes * field.count;
    values.emplace_back(field.name,
                        there ? value_of(field, payload.data() + field.offset) : "missing");
  }
  return values;
}

}  // namespace

const char* name_of(Opcode opcode) {
  const CommandInfo* info = info_of(opcode);
  return info == nullptr ? "" : info->name;
}

Fields fields_of(Opcode opcode, std::span<const unsigned char> payload) {
  const CommandInfo* info = info_of(opcode);
  return info == nullptr ? Fields() : values_of(info->fields, payload);
}

Fields reply_fields_of(Opcode opcode, std::span<const unsigned char> payload) {
  const CommandInfo* info = info_of(opcode);
  return info == nullptr || payload.empty() ? Fields() : values_of(info->reply_fields, payload);
}

Id stream_of(Opcode opcode, std::span<const unsigned char> payload) {
  const CommandInfo* info = info_of(opcode);
  if (info == nullptr) return 0;
  for (const FieldInfo& field : info->fields) {
    if (field.effect != Effect::kIn || payload.size() < field.offset + sizeof(Id)) continue;
    Id stream = 0;
    memcpy(&stream, payload.data() + field.offset, sizeof(stream));
    return stream;
  }
  return 0;
}

std::string text_of(const std::string& name, const Fields& fields) {
  std::string text;
  for (const auto& [field, value] : fields) {
    text += (text.empty() ? "" : ", ") + std::string(field) + "=" + value;
  }
  return name + "{" + text + "}";
}

std::string describe(Opcode opcode, std::span<const unsigned char> payload) {
  if (info_of(opcode) == nullptr) return "command " + std::to_string(static_cast<uint32_t>(opcode));
  return text_of(name_of(opcode), fields_of(opcode, payload));
}

}  // namespace openmps::wire
