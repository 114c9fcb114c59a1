// SPDX-License-Identifier: Apache-2.0
// See code_store.h.
#include "softgpu/tier/code_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/environment.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace openmps::softgpu::tier {
namespace {

constexpr const char* kFolder = "softgpu-code";
constexpr const char* kEnding = ".code";
constexpr char kMagic[8] = {'s', 'g', 'p', 'u', 'c', 'o', 'd', '1'};
// Of one file: more than any kernel that is compiled gives (kMostOps in kernel_tier.cc).
constexpr uint64_t kMostFileBytes = 64ull << 20;

struct Header {
  char magic[sizeof kMagic];
  uint64_t key[2];
  uint64_t checksum;  // of what follows the header
  uint64_t entry;     // of the code
  uint64_t code_bytes;
  uint32_t state_bytes;
  uint32_t entries;
};

// A directory of this user, made if there is none. `closed`: to others.
bool is_own_directory(const std::string& path, bool closed) {
  struct stat info {};
  return !path.empty() && path[0] == '/' && lstat(path.c_str(), &info) == 0 &&
         S_ISDIR(info.st_mode) && info.st_uid == geteuid() &&
         (!closed || (info.st_mode & (S_IRWXG | S_IRWXO)) == 0);
}

bool read_file(const std::string& path, std::string* bytes) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!file.valid() || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_uid != geteuid() || static_cast<uint64_t>(info.st_size) > kMostFileBytes) {
    return false;
  }
  bytes->resize(static_cast<size_t>(info.st_size));
  return ::read(file.get(), bytes->data(), bytes->size()) == static_cast<ssize_t>(bytes->size());
}

uint64_t checksum_of(std::string_view bytes) {
  Hash hash;
  hash.add(bytes);
  return hash.value();
}

}  // namespace

std::string cache_directory() {
  if (const char* chosen = environment_variable("OPENMPS_CACHE_DIRECTORY"); chosen != nullptr) {
    return *chosen == '/' ? chosen : "";
  }
  std::string cache = environment_or("XDG_CACHE_HOME", "");
  if (!is_own_directory(cache, false)) {
    const std::string home = environment_or("HOME", "");
    if (!is_own_directory(home, false)) return "";
    cache = home + "/.cache";
    mkdir(cache.c_str(), S_IRWXU);
  }
  return is_own_directory(cache, false) ? cache + "/openmps" : "";
}

CodeStore::CodeStore(const std::string& place, uint64_t most_bytes) : most_bytes_(most_bytes) {
  if (place.empty()) return;
  mkdir(place.c_str(), S_IRWXU);
  const std::string folder = place + "/" + kFolder;
  mkdir(folder.c_str(), S_IRWXU);
  if (is_own_directory(place, false) && is_own_directory(folder, true)) folder_ = folder;
}

bool CodeStore::read(const KernelKey& key, CompiledImage* image) const {
  if (folder_.empty()) return false;
  const std::string path = folder_ + "/" + key.name() + kEnding;
  std::string bytes;
  Header header;
  if (!read_file(path, &bytes) || bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::string_view rest = std::string_view(bytes).substr(sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.key[0] != key.first ||
      header.key[1] != key.second || header.checksum != checksum_of(rest) ||
      rest.size() != header.entries * sizeof(uint32_t) + header.code_bytes ||
      header.entry >= header.code_bytes) {
    return false;
  }
  image->entries.resize(header.entries);
  const size_t entry_bytes = header.entries * sizeof(uint32_t);
  std::memcpy(image->entries.data(), rest.data(), entry_bytes);
  image->code.bytes = rest.substr(entry_bytes);
  image->code.entry = header.entry;
  image->state_bytes = header.state_bytes;
  // The time of the last use.
  utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return true;
}

void CodeStore::write(const KernelKey& key, const CompiledImage& image) const {
  if (folder_.empty()) return;
  std::string rest(reinterpret_cast<const char*>(image.entries.data()),
                   image.entries.size() * sizeof(uint32_t));
  rest += image.code.bytes;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.key[0] = key.first;
  header.key[1] = key.second;
  header.checksum = checksum_of(rest);
  header.entry = image.code.entry;
  header.code_bytes = image.code.bytes.size();
  header.state_bytes = image.state_bytes;
  header.entries = static_cast<uint32_t>(image.entries.size());
  const std::string bytes =
      std::string(reinterpret_cast<const char*>(&header), sizeof header) + rest;
  if (bytes.size() > kMostFileBytes) return;
  make_room(bytes.size());
  const std::string path = folder_ + "/" + key.name();
  const std::string fresh = path + format_text(".%d.new", static_cast<int>(getpid()));
  const UniqueFd file(
      open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file.valid()) return;
  const bool whole =
      ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  if (!whole || rename(fresh.c_str(), (path + kEnding).c_str()) != 0) unlink(fresh.c_str());
}

void CodeStore::make_room(uint64_t bytes) const {
  struct File {
    std::filesystem::path path;
    std::filesystem::file_time_type time;
    uint64_t bytes;
  };
  std::vector<File> files;
  uint64_t all = bytes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    std::error_code gone;
    const uint64_t size = entry.file_size(gone);
    const auto time = entry.last_write_time(gone);
    if (gone) continue;
    files.push_back({entry.path(), time, size});
    all += size;
  }
  std::sort(files.begin(), files.end(),
            [](const File& x, const File& y) { return x.time < y.time; });
  for (const File& file : files) {
    if (all <= most_bytes_) return;
    std::filesystem::remove(file.path, error);
    all -= file.bytes;
  }
}

}  // namespace openmps::softgpu::tier
