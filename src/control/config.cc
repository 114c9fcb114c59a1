// SPDX-License-Identifier: Apache-2.0
// The configuration file: a list of keys for each kind of table in it. The keys of limits come from
// the table of limits (wire/client_limits.h).
#include "control/config.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "base/unique_fd.h"
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
namespace {

// A long file, with a line for each of some thousand users, has less than 200 KiB.
constexpr size_t kMaxConfigBytes = size_t{1} << 20;
// Reads one document; the first mistake ends it.
class Reader {
 public:
  Reader(std::string name, const FindUser& find_user)
      : name_(std::move(name)), find_user_(find_user) {}

  Status read(const toml::table& document, Config* config) {
    return read_keys(
        document,
        {{"defaults",
          [&](const toml::node& value) {
            return read_limits(value, "[defaults]", &config->defaults);
          }},
         {"users", [&](const toml::node& value) { return read_users(value, &config->users); }},
         {"groups",
          [&](const toml::node& value) {
            return read_rules(value, "group", &config->groups, &Reader::read_group);
          }},
         {"partitions", [&](const toml::node& value) {
            return read_rules(value, "partition", &config->partitions, &Reader::read_partition);
          }}});
  }

  // NAME:LINE:COLUMN: text.
  Status error_at(const toml::source_position& at, const std::string& text) const {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  format_text("%s:%u:%u: %s", name_.c_str(), at.line, at.column, text.c_str()));
  }

 private:
  // A key, and what reads its value.
  struct Key {
    std::string_view name;
    std::function<Status(const toml::node& value)> read;
  };

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

  // ---- Limits ---------------------------------------------------------------------------------

  Status read_limits(const toml::node& value, const char* table_name, Limits* limits) const {
    const toml::table* table = value.as_table();
    if (table == nullptr) return expected(value, std::string("a table, ") + table_name);
    return read_keys(*table, limit_keys(limits, false));
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
      if (!names_a_device(device)) {
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
    switch (info.notation) {
      case wire::Notation::kNumber: return value.value<double>();
      case wire::Notation::kInteger:
        if (const auto number = value.value_exact<int64_t>()) {
          return static_cast<wire::LimitValue>(*number);
        }
        return std::nullopt;
      case wire::Notation::kSize: return info.parse(text_of(value));
    }
    return std::nullopt;
  }

  // ---- Users, groups, partitions --------------------------------------------------------------

  Status read_users(const toml::node& value, std::map<uid_t, Limits>* users) const {
    const toml::table* tables = value.as_table();
    if (tables == nullptr) return expected(value, "tables, [users.NAME]");
    for (const auto& [key, limits] : *tables) {
      const std::string name(key.str());
      const auto uid = user_of(name);
      if (!uid) {
        return error_at(key.source().begin, "there is no user \"" + printable(name) + "\"");
      }
      const auto [entry, is_new] = users->try_emplace(*uid);
      if (limits.is_table() && !is_new) {
        return error_at(key.source().begin, format_text("user %u is there twice", *uid));
      }
      OPENMPS_RETURN_IF_ERROR(read_limits(limits, "[users.NAME]", &entry->second));
    }
    return Status();
  }

  Status read_group(const toml::table& table, GroupRule* rule) const {
    std::vector<Key> keys = {
        {"name", [&](const toml::node& value) { return read_name(value, &rule->name); }},
        {"program",
         [&](const toml::node& value) {
           rule->program = text_of(value);
           const bool is_file =
               !rule->program.empty() && rule->program.find('/') == std::string::npos;
           return is_file ? Status() : expected(value, "the name of a program, without folders");
         }},
        {"cgroup",
         [&](const toml::node& value) {
           rule->cgroup = text_of(value);
           if (rule->cgroup.starts_with('/')) return Status();
           return expected(value, "a pattern of paths, like \"/docker/*\"");
         }},
        {"user",
         [&](const toml::node& value) {
           const std::string name = text_of(value);
           rule->user = user_of(name);
           if (rule->user) return Status();
           return error_at(value.source().begin, "there is no user \"" + printable(name) + "\"");
         }},
        {"each", [&](const toml::node& value) {
           rule->each_cgroup = text_of(value) == "cgroup";
           return rule->each_cgroup ? Status() : expected(value, "\"cgroup\"");
         }}};
    std::ranges::move(limit_keys(&rule->limits, true), std::back_inserter(keys));
    OPENMPS_RETURN_IF_ERROR(read_keys(table, keys));
    if (rule->name.empty()) return expected(table, "a group with a name");
    if (rule->each_cgroup && rule->cgroup.empty()) {
      return expected(*table.get("each"), "a pattern, cgroup = ..., beside it");
    }
    return Status();
  }

  Status read_partition(const toml::table& table, PartitionRule* rule) const {
    OPENMPS_RETURN_IF_ERROR(read_keys(
        table, {{"name", [&](const toml::node& value) { return read_name(value, &rule->name); }},
                {"device",
                 [&](const toml::node& value) {
                   const auto number = value.value_exact<int64_t>();
                   rule->device = number ? std::to_string(*number) : text_of(value);
                   if (names_a_device(rule->device)) return Status();
                   return expected(value, format_text("a device: a number below %u or a UUID, "
                                                      "\"GPU-...\"",
                                                      wire::kMaxDevices));
                 }},
                {"chunks", [&](const toml::node& value) {
                   const auto chunks = value.value_exact<int64_t>();
                   if (!chunks || *chunks < 1 || *chunks > int64_t{wire::kMaxSmGroups}) {
                     return expected(
                         value, format_text("a number of chunks, 1 to %u", wire::kMaxSmGroups));
                   }
                   rule->chunks = static_cast<uint32_t>(*chunks);
                   return Status();
                 }}}));
    if (!rule->name.empty() && !rule->device.empty() && rule->chunks != 0) return Status();
    return expected(table, "a partition with name, device and chunks");
  }

  // Tables with a name each, [[KINDs]].
  template <typename Rule>
  Status read_rules(const toml::node& value, const std::string& kind, std::vector<Rule>* rules,
                    Status (Reader::*read)(const toml::table&, Rule*) const) const {
    const toml::array* tables = value.as_array();
    if (tables == nullptr) return expected(value, "tables, [[" + kind + "s]]");
    for (const toml::node& one : *tables) {
      const toml::table* table = one.as_table();
      if (table == nullptr) return expected(one, "a table, [[" + kind + "s]]");
      Rule rule;
      OPENMPS_RETURN_IF_ERROR((this->*read)(*table, &rule));
      if (std::ranges::find(*rules, rule.name, &Rule::name) != rules->end()) {
        return error_at(table->get("name")->source().begin,
                        kind + " " + rule.name + " is there twice");
      }
      rules->push_back(std::move(rule));
    }
    return Status();
  }

  // The name of a group or a partition.
  Status read_name(const toml::node& value, std::string* name) const {
    *name = text_of(value);
    if (names_a_group(*name)) return Status();
    return expected(value, format_text("letters, digits, _, - and . in quotation marks, at most "
                                       "%zu, and not digits alone",
                                       kMaxGroupWord));
  }

  // A user, by name or number.
  std::optional<uid_t> user_of(const std::string& name) const {
    const auto number = parse_unsigned(name, UINT32_MAX - 1);  // the largest number is no user
    return number ? std::optional<uid_t>(static_cast<uid_t>(*number)) : find_user_(name);
  }

  static std::string text_of(const toml::node& value) {
    return std::string(value.value_exact<std::string_view>().value_or(std::string_view()));
  }

  Status expected(const toml::node& value, const std::string& what) const {
    return error_at(value.source().begin, "expected " + what);
  }

  const std::string name_;
  const FindUser& find_user_;
};

// toml++ 3.3.0 has undefined behaviour where it looks for white space and finds U+00A1 to U+0499.
// No valid file has such a character outside of comments, so the parser gets ASCII only.
Status without_foreign_comments(std::string_view text, const Reader& reader, std::string* ascii) {
  toml::source_position at{1, 1};
  bool in_comment = false;
  for (const char c : text) {
    const bool is_foreign = static_cast<unsigned char>(c) >= 0x80;
    if (is_foreign && !in_comment) {
      return reader.error_at(at, "only comments may have characters beyond ASCII");
    }
    ascii->push_back(is_foreign ? '?' : c);
    in_comment = c != '\n' && (in_comment || c == '#');
    at = c == '\n' ? toml::source_position{at.line + 1, 1}
                   : toml::source_position{at.line, at.column + 1};
  }
  return Status();
}

// The position after the string that begins at `at`. The parser reports a string without an end,
// and parses nothing after it.
size_t end_of_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const std::string fence(3, quote);
  const bool has_lines = text.substr(at, fence.size()) == fence;
  for (at += has_lines ? fence.size() : 1; at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"') {
      ++at;
    } else if (!has_lines && (text[at] == quote || text[at] == '\n')) {
      return at + 1;
    } else if (has_lines && text.substr(at, fence.size()) == fence) {
      at += fence.size();
      // One or two quotation marks before the closing ones belong to the string.
      for (int more = 0; more < 2 && at < text.size() && text[at] == quote; ++more) ++at;
      return at;
    }
  }
  return text.size();
}

toml::source_position position_of(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // 0 if there is no newline
  return {static_cast<toml::source_index>(lines + 1),
          static_cast<toml::source_index>(at - line_start + 1)};
}

// The parser bounds the nesting of values, but not the number of parts of a key.
Status check_keys(std::string_view text, const Reader& reader) {
  size_t dots = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = end_of_string(text, at);
      continue;
    }
    if (c == '#') at = std::min(text.find('\n', at), text.size() - 1);
    if (std::string_view("=,{}[]\n").find(text[at]) != std::string_view::npos) dots = 0;
    if (c == '.' && ++dots == OPENMPS_CONFIG_DEPTH) {
      return reader.error_at(position_of(text, at),
                             format_text("a key of more than %d parts", OPENMPS_CONFIG_DEPTH));
    }
    ++at;
  }
  return Status();
}

std::optional<uid_t> find_system_user(const std::string& name) {
  const passwd* entry = getpwnam(name.c_str());
  return entry != nullptr ? std::optional<uid_t>(entry->pw_uid) : std::nullopt;
}

}  // namespace

Result<Config> parse_config(std::string_view text, const std::string& name,
                            const FindUser& find_user) {
  Reader reader(name, find_user);
  std::string ascii;
  OPENMPS_RETURN_IF_ERROR(without_foreign_comments(text, reader, &ascii));
  OPENMPS_RETURN_IF_ERROR(check_keys(ascii, reader));
  const toml::parse_result parsed = toml::parse(ascii);
  if (!parsed) {
    return reader.error_at(parsed.error().source().begin, printable(parsed.error().description()));
  }
  Config config;
  OPENMPS_RETURN_IF_ERROR(reader.read(parsed.table(), &config));
  return config;
}

Result<Config> read_config(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0) {
    return Status(CUDA_ERROR_FILE_NOT_FOUND, path + ": " + strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return Status(CUDA_ERROR_FILE_NOT_FOUND, path + ": not a file");
  std::string text(kMaxConfigBytes + 1, '\0');
  size_t bytes = 0;
  ssize_t got = 0;
  while (bytes < text.size() &&
         (got = read(file.get(), text.data() + bytes, text.size() - bytes)) > 0) {
    bytes += static_cast<size_t>(got);
  }
  if (got < 0) return Status(CUDA_ERROR_FILE_NOT_FOUND, path + ": " + strerror(errno));
  if (bytes > kMaxConfigBytes) {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  format_text("%s: longer than %zu bytes", path.c_str(), kMaxConfigBytes));
  }
  text.resize(bytes);
  return parse_config(text, path, find_system_user);
}

Status check_mode(const Config& config, bool has_static_partitions) {
  if (config.partitions.empty() || has_static_partitions) return Status();
  return Status(CUDA_ERROR_INVALID_VALUE, "[[partitions]] are for a daemon with -S");
}

}  // namespace openmps::control
