// SPDX-License-Identifier: Apache-2.0
// See describe.h.
#include "cupti/describe.h"

#include <cxxabi.h>

#include <cstdlib>
#include <memory>

namespace openmps::cupti {
namespace {

std::string demangled(const std::string& name) {
  struct Free {
    void operator()(char* text) const { free(text); }
  };
  int status = 0;
  const std::unique_ptr<char, Free> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status));
  return status == 0 && text != nullptr ? text.get() : name;
}

// A kernel's name is whatever its program says.
std::string plain(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '"' || c == '\\' || c == '\x7f') c = '?';
  }
  return text;
}

const char* place_of(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kPageable:
    case MemoryKind::kPinned: return "host";
    case MemoryKind::kDevice: return "device";
    case MemoryKind::kArray: return "array";
    case MemoryKind::kManaged: return "managed";
    default: return "unknown";
  }
}

std::string shape(const uint32_t (&size)[3]) {
  return std::to_string(size[0]) + " x " + std::to_string(size[1]) + " x " +
         std::to_string(size[2]);
}

}  // namespace

std::string title_of(const Activity& activity, std::string_view name) {
  switch (activity.kind) {
    case ActivityKind::kKernel:
      return name.empty() ? "kernel" : plain(demangled(std::string(name)));
    case ActivityKind::kCopy:
      return std::string("copy, ") + place_of(activity.from) + " to " + place_of(activity.to);
    case ActivityKind::kFill: return "fill";
    default: return "call";
  }
}

std::vector<std::pair<const char*, std::string>> fields_of(const Activity& activity) {
  std::vector<std::pair<const char*, std::string>> fields;
  const auto add = [&fields](const char* name, uint64_t value) {
    fields.emplace_back(name, std::to_string(value));
  };
  if (activity.kind == ActivityKind::kKernel) {
    fields.emplace_back("grid", shape(activity.grid));
    fields.emplace_back("block", shape(activity.block));
    add("registers per thread", activity.registers);
    add("shared bytes",
        static_cast<uint64_t>(activity.static_shared_bytes) + activity.dynamic_shared_bytes);
  } else {
    add("bytes", activity.bytes);
  }
  if (activity.kind == ActivityKind::kFill) add("value", activity.value);
  if (activity.is_peer != 0) add("to device", activity.peer);
  if (activity.graph != 0) add("graph", activity.graph);
  return fields;
}

}  // namespace openmps::cupti
