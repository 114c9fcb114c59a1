// SPDX-License-Identifier: Apache-2.0
// The configuration file: a table of keys for each kind of table in it. Whoever adds a kind adds a
// reader to kTables.
#include "control/config.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/text.h"
#include "base/unique_fd.h"
#include "wire/handshake.h"

// Tables and arrays inside one another, and the parts of a key: nothing that we take is deeper than
// five (users.NAME.device_pinned_mem_limit.0). What the parser makes of them ends by recursion,
// which must not use up the stack.
#define OPENMPS_CONFIG_DEPTH 16
#define TOML_MAX_NESTED_VALUES OPENMPS_CONFIG_DEPTH
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1  // or the daemon would need its library
#include <toml++/toml.h>

namespace openmps::control {
namespace {

// The longest sensible one, with a line for each of some thousand users, is below 200 KiB.
constexpr size_t kMaxConfigBytes = size_t{1} << 20;
// More than any GPU has: an H200 has 132.
constexpr int kMostSms = 1024;

// Reads one document; the first mistake ends it.
class Reader {
 public:
  Reader(std::string name, const FindUser& find_user)
      : name_(std::move(name)), find_user_(find_user) {}

  Status read(const toml::table& document, Config* config) {
    config_ = config;
    static constexpr Key<Reader> kTables[] = {{"defaults", &Reader::read_defaults},
                                              {"users", &Reader::read_users},
                                              {"groups", &Reader::read_groups},
                                              {"partitions", &Reader::read_partitions}};
    return read_keys<Reader>(document, kTables, *this);
  }

  // NAME:LINE:COLUMN: text.
  Status error_at(const toml::source_position& at, const std::string& text) const {
    return Status(CUDA_ERROR_INVALID_VALUE,
                  format_text("%s:%u:%u: %s", name_.c_str(), at.line, at.column, text.c_str()));
  }

 private:
  // A key, and who takes its value.
  template <typename Taker>
  struct Key {
    std::string_view name;
    Status (Taker::*take)(const toml::node& value);
  };

  // The keys of one table of limits.
  class LimitsReader {
   public:
    LimitsReader(const Reader& reader, Limits* limits) : reader_(reader), limits_(limits) {}

    Status read(const toml::table& table) {
      static constexpr Key<LimitsReader> kKeys[] = {
          {"active_thread_percentage", &LimitsReader::read_percentage},
          {"client_priority", &LimitsReader::read_priority},
          {"device_pinned_mem_limit", &LimitsReader::read_memory}};
      return reader_.read_keys<LimitsReader>(table, kKeys, *this);
    }

   protected:
    Status read_percentage(const toml::node& value) {
      limits_->percentage = value.value<double>();
      if (limits_->percentage && is_percentage(*limits_->percentage)) return Status();
      return reader_.expected(value, "a number above 0, up to 100");
    }
    Status read_priority(const toml::node& value) {
      const auto priority = value.value_exact<int64_t>();
      if (!priority || *priority < 0 || *priority > 1) {
        return reader_.expected(value, "0 (normal) or 1 (below normal)");
      }
      limits_->priority = static_cast<uint32_t>(*priority);
      return Status();
    }
    Status read_memory(const toml::node& value) {
      return read_by_device(
          value, "a table, like {0 = \"3G\"}", [this](const std::string& device, const auto& size) {
            const auto text = size.template value_exact<std::string_view>();
            const auto bytes = text ? parse_memory_limit(*text) : std::nullopt;
            if (!bytes) {
              return reader_.expected(size, "a size in M or G, like \"512M\"; \"0G\" is no limit");
            }
            limits_->memory[device] = *bytes;
            return Status();
          });
    }
    // A table of values by device.
    template <typename ReadOne>
    Status read_by_device(const toml::node& value, const char* wanted, ReadOne&& read_one) {
      const toml::table* devices = value.as_table();
      if (devices == nullptr) return reader_.expected(value, wanted);
      for (const auto& [key, one] : *devices) {
        const std::string device(key.str());
        if (!names_a_device(device)) {
          return reader_.error_at(
              key.source().begin,
              format_text("\"%s\" is no device: expected a number below %u or a UUID, GPU-...",
                          printable(device).c_str(), wire::kMaxDevices));
        }
        OPENMPS_RETURN_IF_ERROR(read_one(device, one));
      }
      return Status();
    }

    const Reader& reader_;

   private:
    Limits* limits_;
  };

  // The keys of one of the groups.
  class GroupReader : LimitsReader {
   public:
    GroupReader(const Reader& reader, GroupRule* rule)
        : LimitsReader(reader, &rule->limits), rule_(rule) {}

    Status read(const toml::table& table) {
      static constexpr Key<GroupReader> kKeys[] = {
          {"name", &GroupReader::read_name},
          {"program", &GroupReader::read_program},
          {"cgroup", &GroupReader::read_cgroup},
          {"user", &GroupReader::read_user},
          {"each", &GroupReader::read_each},
          {"active_thread_percentage", &GroupReader::read_percentage},
          {"sm_count", &GroupReader::read_sm_count},
          {"client_priority", &GroupReader::read_priority},
          {"device_pinned_mem_limit", &GroupReader::read_memory}};
      OPENMPS_RETURN_IF_ERROR(reader_.read_keys<GroupReader>(table, kKeys, *this));
      if (rule_->name.empty()) return reader_.expected(table, "a group with a name");
      if (rule_->each_cgroup && rule_->cgroup.empty()) {
        return reader_.expected(*table.get("each"), "a pattern, cgroup = ..., beside it");
      }
      return Status();
    }

   private:
    Status read_name(const toml::node& value) { return reader_.read_name(value, &rule_->name); }
    Status read_program(const toml::node& value) {
      rule_->program = text_of(value);
      const bool is_file = !rule_->program.empty() && rule_->program.find('/') == std::string::npos;
      return is_file ? Status() : reader_.expected(value, "the name of a program, without folders");
    }
    Status read_cgroup(const toml::node& value) {
      rule_->cgroup = text_of(value);
      if (rule_->cgroup.starts_with('/')) return Status();
      return reader_.expected(value, "a pattern of paths, like \"/docker/*\"");
    }
    Status read_user(const toml::node& value) {
      const std::string name = text_of(value);
      rule_->user = reader_.user_of(name);
      if (rule_->user) return Status();
      return reader_.error_at(value.source().begin, "there is no user \"" + printable(name) + "\"");
    }
    Status read_each(const toml::node& value) {
      rule_->each_cgroup = text_of(value) == "cgroup";
      return rule_->each_cgroup ? Status() : reader_.expected(value, "\"cgroup\"");
    }
    Status read_sm_count(const toml::node& value) {
      return read_by_device(
          value, "a table, like {0 = 32}", [this](const std::string& device, const auto& one) {
            const auto sms = one.template value_exact<int64_t>();
            if (!sms || *sms < 1 || *sms > kMostSms) {
              return reader_.expected(one, format_text("a number of SMs, 1 to %d", kMostSms));
            }
            rule_->sms[device] = static_cast<uint32_t>(*sms);
            return Status();
          });
    }

    GroupRule* rule_;
  };

  // The keys of one of the static partitions.
  class PartitionReader {
   public:
    PartitionReader(const Reader& reader, PartitionRule* rule) : reader_(reader), rule_(rule) {}

    Status read(const toml::table& table) {
      static constexpr Key<PartitionReader> kKeys[] = {{"name", &PartitionReader::read_name},
                                                       {"device", &PartitionReader::read_device},
                                                       {"chunks", &PartitionReader::read_chunks}};
      OPENMPS_RETURN_IF_ERROR(reader_.read_keys<PartitionReader>(table, kKeys, *this));
      if (!rule_->name.empty() && !rule_->device.empty() && rule_->chunks != 0) return Status();
      return reader_.expected(table, "a partition with name, device and chunks");
    }

   private:
    Status read_name(const toml::node& value) { return reader_.read_name(value, &rule_->name); }
    Status read_device(const toml::node& value) {
      const auto number = value.value_exact<int64_t>();
      rule_->device = number ? std::to_string(*number) : text_of(value);
      if (names_a_device(rule_->device)) return Status();
      return reader_.expected(value, format_text("a device: a number below %u or a UUID, "
                                                 "\"GPU-...\"",
                                                 wire::kMaxDevices));
    }
    Status read_chunks(const toml::node& value) {
      const auto chunks = value.value_exact<int64_t>();
      if (!chunks || *chunks < 1 || *chunks > int64_t{wire::kMaxSmGroups}) {
        return reader_.expected(value,
                                format_text("a number of chunks, 1 to %u", wire::kMaxSmGroups));
      }
      rule_->chunks = static_cast<uint32_t>(*chunks);
      return Status();
    }

    const Reader& reader_;
    PartitionRule* rule_;
  };

  static std::string text_of(const toml::node& value) {
    return std::string(value.value_exact<std::string_view>().value_or(std::string_view()));
  }

  // Of a group or a partition.
  Status read_name(const toml::node& value, std::string* name) const {
    *name = text_of(value);
    if (names_a_group(*name)) return Status();
    return expected(value, format_text("letters, digits, _, - and . in quotation marks, at most "
                                       "%zu, and not digits alone",
                                       kMaxGroupWord));
  }

  Status expected(const toml::node& value, const std::string& what) const {
    return error_at(value.source().begin, "expected " + what);
  }

  template <typename Taker>
  Status read_keys(const toml::table& table, std::span<const Key<Taker>> keys, Taker& taker) const {
    for (const auto& [key, value] : table) {
      const auto found = std::find_if(keys.begin(), keys.end(), [&name = key](const auto& known) {
        return known.name == name.str();
      });
      if (found == keys.end()) {
        std::string all;
        for (const auto& known : keys) all += (all.empty() ? "" : ", ") + std::string(known.name);
        return error_at(key.source().begin,
                        "unknown key \"" + printable(key.str()) + "\": expected one of " + all);
      }
      OPENMPS_RETURN_IF_ERROR((taker.*found->take)(value));
    }
    return Status();
  }

  Status read_defaults(const toml::node& value) {
    const toml::table* table = value.as_table();
    if (table == nullptr) return expected(value, "a table, [defaults]");
    return LimitsReader(*this, &config_->defaults).read(*table);
  }

  Status read_users(const toml::node& value) {
    const toml::table* users = value.as_table();
    if (users == nullptr) return expected(value, "tables, [users.NAME]");
    for (const auto& [key, limits] : *users) {
      const std::string name(key.str());
      const auto uid = user_of(name);
      if (!uid) {
        return error_at(key.source().begin, "there is no user \"" + printable(name) + "\"");
      }
      const toml::table* table = limits.as_table();
      if (table == nullptr) return expected(limits, "a table, [users.NAME]");
      const auto [entry, is_new] = config_->users.try_emplace(*uid);
      if (!is_new) {
        return error_at(key.source().begin, format_text("user %u is there twice", *uid));
      }
      OPENMPS_RETURN_IF_ERROR(LimitsReader(*this, &entry->second).read(*table));
    }
    return Status();
  }

  // By name or number.
  std::optional<uid_t> user_of(const std::string& name) const {
    const auto number = parse_unsigned(name, UINT32_MAX - 1);  // the last one is no user
    return number ? std::optional<uid_t>(static_cast<uid_t>(*number)) : find_user_(name);
  }

  Status read_groups(const toml::node& value) {
    return read_rules<GroupReader>(value, "group", &config_->groups);
  }

  Status read_partitions(const toml::node& value) {
    return read_rules<PartitionReader>(value, "partition", &config_->partitions);
  }

  // Tables with a name each, [[KINDs]].
  template <typename RuleReader, typename Rule>
  Status read_rules(const toml::node& value, const std::string& kind, std::vector<Rule>* rules) {
    const toml::array* tables = value.as_array();
    if (tables == nullptr) return expected(value, "tables, [[" + kind + "s]]");
    for (const toml::node& one : *tables) {
      const toml::table* table = one.as_table();
      if (table == nullptr) return expected(one, "a table, [[" + kind + "s]]");
      Rule rule;
      OPENMPS_RETURN_IF_ERROR(RuleReader(*this, &rule).read(*table));
      const auto same = [&rule](const Rule& other) { return other.name == rule.name; };
      if (std::ranges::any_of(*rules, same)) {
        return error_at(table->get("name")->source().begin,
                        kind + " " + rule.name + " is there twice");
      }
      rules->push_back(std::move(rule));
    }
    return Status();
  }

  const std::string name_;
  const FindUser& find_user_;
  Config* config_ = nullptr;
};

// toml++ 3.3.0 is undefined where it looks for white space and finds U+00A1 to U+0499, and nothing
// that we take has such a character. So the parser gets ASCII: comments may have any other bytes.
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

// The place behind the string that begins at `at`; one that does not end where it has to is a
// mistake there, behind which nothing is parsed.
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
      // One or two quotation marks before the fence are the string's.
      for (int more = 0; more < 2 && at < text.size() && text[at] == quote; ++more) ++at;
      return at;
    }
  }
  return text.size();
}

toml::source_position position_of(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') + 1;  // 0 behind npos
  return {static_cast<toml::source_index>(lines + 1),
          static_cast<toml::source_index>(at - line_start + 1)};
}

// The parser bounds values inside one another, and not how many parts a key has.
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
