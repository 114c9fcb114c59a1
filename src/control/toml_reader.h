// SPDX-License-Identifier: Apache-2.0
// The parts of the configuration's reader that all of its tables share: keys, limits, users, and
// messages with their place. The only file that includes toml++.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "control/config_model.h"
#include "control/limits.h"
#include "wire/handshake.h"

// The nesting of tables and arrays, and the parts of a key, at most. A valid file needs no more
// than five (users.NAME.device_pinned_mem_limit.0). The parser destroys what it has parsed by
// recursion, which must not use up the stack.
#define OPENMPS_CONFIG_DEPTH 16
#define TOML_MAX_NESTED_VALUES OPENMPS_CONFIG_DEPTH
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1  // the daemon shall not need its library
#include <toml++/toml.h>

namespace openmps::control {

// Reads one document; the first mistake ends it.
class TomlReader {
 public:
  TomlReader(std::string name, const FindUser& find_user)
      : name_(std::move(name)), find_user_(find_user) {}

  // A key, and what reads its value.
  struct Key {
    std::string_view name;
    std::function<Status(const toml::node& value)> read;
  };

  // NAME:LINE:COLUMN: text.
  Status error_at(const toml::source_position& at, const std::string& text) const {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  format_text("%s:%u:%u: %s", name_.c_str(), at.line, at.column, text.c_str()));
  }

  Status read_keys(const toml::table& table, const std::vector<Key>& keys) const {
    for (const auto& [key, value] : table) {
      const auto found = std::ranges::find(keys, key.str(), &Key::name);
      if (found == keys.end()) {
        std::string all;
        for (const Key& known : keys) all += (all.empty() ? "" : ", ") + std::string(known.name);
        return error_at(key.source().begin,
                        "unknown key \"" + printable(key.str()) + "\": expected one of " + all);
      }
      OPENMPS_RETURN_IF_ERROR(found->read(value));
    }
    return Status();
  }

  Status read_limits(const toml::node& value, const char* table_name, Limits* limits) const {
    const toml::table* table = value.as_table();
    if (table == nullptr) return expected(value, std::string("a table, ") + table_name);
    OPENMPS_RETURN_IF_ERROR(read_keys(*table, limit_keys(limits, false)));
    return check_limits(*table, *limits);
  }

  // That the limits, of this table, do not contradict each other.
  Status check_limits(const toml::table& table, const Limits& limits) const {
    const std::string fault = fault_of_guarantee(limits);
    if (fault.empty()) return Status();
    const toml::node* key = table.get(wire::info_of(wire::Limit::kGuaranteedMemory).name);
    return error_at(key != nullptr ? key->source().begin : table.source().begin, fault);
  }

  std::vector<Key> limit_keys(Limits* limits, bool is_of_group) const {
    std::vector<Key> keys;
    for (const wire::LimitInfo& info : wire::limit_table()) {
      if (info.is_of_groups && !is_of_group) continue;
      keys.push_back({info.name, [this, &info, limits](const toml::node& value) {
                        return info.is_per_device ? read_by_device(value, info, limits)
                                                  : read_limit(value, info, "", limits);
                      }});
    }
    return keys;
  }

  Status read_by_device(const toml::node& value, const wire::LimitInfo& info,
                        Limits* limits) const {
    const toml::table* devices = value.as_table();
    if (devices == nullptr) return expected(value, std::string(info.expected_table));
    for (const auto& [key, one] : *devices) {
      const std::string device(key.str());
      if (device != kEveryDevice && !names_a_device(device)) {
        return error_at(
            key.source().begin,
            format_text("\"%s\" is no device: expected a number below %u or a UUID, GPU-...",
                        printable(device).c_str(), wire::kMaxDevices));
      }
      OPENMPS_RETURN_IF_ERROR(read_limit(one, info, device, limits));
    }
    return Status();
  }

  Status read_limit(const toml::node& value, const wire::LimitInfo& info, const std::string& device,
                    Limits* limits) const {
    const std::optional<wire::LimitValue> stated = limit_of(value, info);
    if (!stated || !(*stated >= info.least && *stated <= info.most)) {
      return expected(value, std::string(info.expected));
    }
    (*limits)[{info.limit, device}] = *stated;
    return Status();
  }

  static std::optional<wire::LimitValue> limit_of(const toml::node& value,
                                                  const wire::LimitInfo& info) {
    // Files of MPS's interface v3 have numbers in quotation marks.
    if (const auto text = value.value_exact<std::string_view>()) return info.parse(*text);
    switch (info.notation) {
      case wire::Notation::kNumber: return value.value<double>();
      case wire::Notation::kInteger:
        if (const auto number = value.value_exact<int64_t>()) {
          return static_cast<wire::LimitValue>(*number);
        }
        return std::nullopt;
      case wire::Notation::kSize:
      case wire::Notation::kWord: return info.parse(text_of(value));
      case wire::Notation::kSwitch:
        if (const auto is_on = value.value_exact<bool>()) return *is_on ? 1 : 0;
        return std::nullopt;
    }
    return std::nullopt;
  }

  // A user, by name or number.
  std::optional<uid_t> user_of(const std::string& name) const {
    const auto number = parse_unsigned(name, UINT32_MAX - 1);  // the largest number is no user
    return number ? std::optional<uid_t>(static_cast<uid_t>(*number)) : find_user_(name);
  }

  static std::string text_of(const toml::node& value) {
    return std::string(value.value_exact<std::string_view>().value_or(std::string_view()));
  }

  // The keys of a partition that say how many chunks it has, and check_chunks(), what they say
  // together.
  std::vector<Key> chunk_keys(PartitionRule* rule) const {
    const auto chunks = [this](uint32_t* target, int64_t least) {
      return [this, target, least](const toml::node& value) {
        const auto number = value.value_exact<int64_t>();
        if (!number || *number < least || *number > int64_t{wire::kMaxSmGroups}) {
          return expected(value, format_text("a number of chunks, %d to %u",
                                             static_cast<int>(least), wire::kMaxSmGroups));
        }
        *target = static_cast<uint32_t>(*number);
        return Status();
      };
    };
    return {{"chunks", chunks(&rule->chunks, 1)},
            {"shareable", boolean(&rule->is_shareable)},
            {"max_chunks", chunks(&rule->most_chunks, 0)}};
  }
  Status check_chunks(const toml::table& table, const PartitionRule& rule) const {
    const std::string fault = fault_of_most_chunks(rule);
    if (fault.empty()) return Status();
    return error_at(table.source().begin, "partition " + rule.name + ": " + fault);
  }

  std::function<Status(const toml::node&)> boolean(bool* target) const {
    return [this, target](const toml::node& value) {
      const auto is_on = value.value_exact<bool>();
      if (!is_on) return expected(value, "true or false");
      *target = *is_on;
      return Status();
    };
  }

  Status expected(const toml::node& value, const std::string& what) const {
    return error_at(value.source().begin, "expected " + what);
  }

 private:
  const std::string name_;
  const FindUser& find_user_;
};

}  // namespace openmps::control
