// SPDX-License-Identifier: Apache-2.0
// The configuration file: a table of keys for each kind of table in it. Whoever adds a kind
// (groups, partitions) adds a reader to kTables.
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

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1  // or the daemon would need its library
#include <toml++/toml.h>

namespace openmps::control {
namespace {

// The longest sensible one, with a line for each of some thousand users, is below 200 KiB.
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Reads one document; the first mistake ends it.
class Reader {
 public:
  Reader(std::string name, const FindUser& find_user)
      : name_(std::move(name)), find_user_(find_user) {}

  Status read(const toml::table& document, Config* config) {
    config_ = config;
    static constexpr Key<Reader> kTables[] = {{"defaults", &Reader::read_defaults},
                                              {"users", &Reader::read_users}};
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

   private:
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
      const toml::table* devices = value.as_table();
      if (devices == nullptr) return reader_.expected(value, "a table, like {0 = \"3G\"}");
      for (const auto& [key, size] : *devices) {
        const std::string device(key.str());
        if (!names_a_device(device)) {
          return reader_.error_at(
              key.source().begin,
              format_text("\"%s\" is no device: expected a number below %u or a UUID, GPU-...",
                          printable(device).c_str(), wire::kMaxDevices));
        }
        const auto text = size.value_exact<std::string_view>();
        const auto bytes = text ? parse_memory_limit(*text) : std::nullopt;
        if (!bytes) {
          return reader_.expected(size, "a size in M or G, like \"512M\"; \"0G\" is no limit");
        }
        limits_->memory[device] = *bytes;
      }
      return Status();
    }

    const Reader& reader_;
    Limits* limits_;
  };

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
      const auto number = parse_unsigned(name, UINT32_MAX - 1);  // the last one is no user
      const auto uid =
          number ? std::optional<uid_t>(static_cast<uid_t>(*number)) : find_user_(name);
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

}  // namespace openmps::control
