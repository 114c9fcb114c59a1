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
#include "control/config_servers.h"
#include "control/toml_reader.h"
#include "wire/handshake.h"

namespace openmps::control {
namespace {

// A long file, with a line for each of some thousand users, has less than 200 KiB.
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

class Reader : public TomlReader {
 public:
  using TomlReader::TomlReader;

  Status read(const toml::table& document, Config* config) {
    std::vector<Key> keys = keys_of_v3(*this, config);
    std::ranges::move(
        std::vector<Key>{
            {"defaults",
             [&](const toml::node& value) {
               return read_limits(value, "[defaults]", &config->defaults);
             }},
            {"users", [&](const toml::node& value) { return read_users(value, &config->users); }},
            {"groups",
             [&](const toml::node& value) {
               return read_rules(value, "group", &config->groups, &Reader::read_group);
             }},
            {"partitions",
             [&](const toml::node& value) {
               return read_rules(value, "partition", &config->partitions, &Reader::read_partition);
             }}},
        std::back_inserter(keys));
    return read_keys(document, keys);
  }

 private:
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
    return check_limits(table, rule->limits);
  }

  Status read_partition(const toml::table& table, PartitionRule* rule) const {
    std::vector<Key> keys = {
        {"name", [&](const toml::node& value) { return read_name(value, &rule->name); }},
        {"device", [&](const toml::node& value) {
           const auto number = value.value_exact<int64_t>();
           rule->device = number ? std::to_string(*number) : text_of(value);
           if (names_a_device(rule->device)) return Status();
           return expected(value, format_text("a device: a number below %u or a UUID, \"GPU-...\"",
                                              wire::kMaxDevices));
         }}};
    std::ranges::move(chunk_keys(rule), std::back_inserter(keys));
    OPENMPS_RETURN_IF_ERROR(read_keys(table, keys));
    if (!rule->name.empty() && !rule->device.empty() && rule->chunks != 0) {
      return check_chunks(table, *rule);
    }
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
};

// toml++ 3.3.0 has undefined behaviour where it looks for white space and finds U+00A1 to U+0499.
// No valid file has such a character outside of comments, so the parser gets ASCII only.
Status without_foreign_comments(std::string_view text, const TomlReader& reader,
                                std::string* ascii) {
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
Status check_keys(std::string_view text, const TomlReader& reader) {
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
  const bool has_own = std::ranges::any_of(
      config.partitions, [](const PartitionRule& rule) { return rule.server.empty(); });
  if (!has_own || has_static_partitions) return Status();
  return Status(CUDA_ERROR_INVALID_VALUE, "[[partitions]] are for a daemon with -S");
}

}  // namespace openmps::control
