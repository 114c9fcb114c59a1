// SPDX-License-Identifier: Apache-2.0
// See maps.h.
#include "client/memory/maps.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace openmps::client {
namespace {

// What is left of a line.
struct Rest {
  const char* at;
  const char* end;

  bool skip(char expected) {
    if (at == end || *at != expected) return false;
    ++at;
    return true;
  }
  // Digits of that base; false if there are none.
  bool number(unsigned base, uint64_t* value) {
    const char* first = at;
    *value = 0;
    for (; at != end; ++at) {
      const char c = *at;
      unsigned digit = base;
      if (c >= '0' && c <= '9') digit = static_cast<unsigned>(c - '0');
      if (c >= 'a' && c <= 'f') digit = static_cast<unsigned>(c - 'a') + 10;
      if (digit >= base) break;
      *value = *value * base + digit;
    }
    return at != first;
  }
};

}  // namespace

bool parse_maps_line(const char* line, size_t length, MappedRegion* region) {
  Rest rest{line, line + length};
  uint64_t major_number = 0;
  uint64_t minor_number = 0;
  if (!rest.number(16, &region->begin) || !rest.skip('-') || !rest.number(16, &region->end) ||
      !rest.skip(' ') || rest.end - rest.at < 5) {
    return false;
  }
  const char* access = rest.at;
  rest.at += 4;
  region->kind.protection = (access[0] == 'r' ? PROT_READ : 0) |
                            (access[1] == 'w' ? PROT_WRITE : 0) |
                            (access[2] == 'x' ? PROT_EXEC : 0);
  region->kind.shared = access[3] == 's';
  if (!rest.skip(' ') || !rest.number(16, &region->offset) || !rest.skip(' ') ||
      !rest.number(16, &major_number) || !rest.skip(':') || !rest.number(16, &minor_number) ||
      !rest.skip(' ') || !rest.number(10, &region->kind.inode)) {
    return false;
  }
  region->kind.device = major_number << 32 | minor_number;
  while (rest.skip(' ')) {
  }
  region->path = rest.at;
  region->path_length = static_cast<size_t>(rest.end - rest.at);
  return region->begin < region->end;
}

void visit_regions(const std::function<bool(const MappedRegion& region)>& wanted) {
  const UniqueFd file(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return;
  // A line is an address range and a path of PATH_MAX at most, in which a newline is escaped.
  char buffer[16 * 1024];
  size_t held = 0;
  for (;;) {
    const ssize_t got = read(file.get(), buffer + held, sizeof(buffer) - held);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    held += static_cast<size_t>(got);
    size_t done = 0;
    while (const void* newline = memchr(buffer + done, '\n', held - done)) {
      const auto length = static_cast<size_t>(static_cast<const char*>(newline) - (buffer + done));
      MappedRegion region;
      if (parse_maps_line(buffer + done, length, &region) && !wanted(region)) return;
      done += length + 1;
    }
    if (done == 0 && held == sizeof(buffer)) return;  // no line is as long as that
    memmove(buffer, buffer + done, held - done);
    held -= done;
  }
}

std::vector<Region> regions_of(uint64_t begin, uint64_t end) {
  std::vector<Region> found;
  uint64_t covered = begin;
  visit_regions([&](const MappedRegion& region) {
    if (region.end <= covered) return true;
    if (region.begin > covered) return false;
    found.push_back({region, std::string(region.path, region.path_length)});
    found.back().path = nullptr;
    covered = region.end;
    return covered < end;
  });
  if (covered < end) found.clear();
  return found;
}

// ---- The file behind a mapping ------------------------------------------------------------------

namespace {

// Only files, by a name under /proc/self/fd of an O_PATH descriptor: opening anything else can have
// effects.
UniqueFd open_file(const char* path, bool write) {
  const UniqueFd place(open(path, O_PATH | O_CLOEXEC));
  struct stat info {};
  if (!place.valid() || fstat(place.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  char name[32];
  snprintf(name, sizeof(name), "/proc/self/fd/%d", place.get());
  return UniqueFd(open(name, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK));
}

// The kernel's own word for what the descriptor is of: stat() tells other numbers on some file
// systems (btrfs, overlays).
bool is_same_file(int file, const MappingKind& kind) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* probe = mmap(nullptr, page, PROT_NONE, MAP_SHARED, file, 0);
  if (probe == MAP_FAILED) {
    // Of huge pages.
    struct stat info {};
    return fstat(file, &info) == 0 && info.st_ino == kind.inode;
  }
  const auto address = reinterpret_cast<uint64_t>(probe);
  const std::vector<Region> found = regions_of(address, address + page);
  munmap(probe, page);
  return !found.empty() && found.front().kind.is_of_file_of(kind);
}

UniqueFd from_map_files(const Region& region, bool write) {
  char name[64];
  snprintf(name, sizeof(name), "/proc/self/map_files/%lx-%lx", region.begin, region.end);
  return UniqueFd(open(name, (write ? O_RDWR : O_RDONLY) | O_CLOEXEC));
}

UniqueFd from_path(const Region& region, bool write) {
  if (region.name.empty() || region.name[0] != '/') return {};
  UniqueFd file = open_file(region.name.c_str(), write);
  return file.valid() && is_same_file(file.get(), region.kind) ? std::move(file) : UniqueFd();
}

UniqueFd from_descriptors(const Region& region, bool write) {
  const std::unique_ptr<DIR, int (*)(DIR*)> all(opendir("/proc/self/fd"), closedir);
  if (all == nullptr) return {};
  while (const dirent* entry = readdir(all.get())) {
    struct stat info {};
    const int number = static_cast<int>(strtol(entry->d_name, nullptr, 10));
    if (entry->d_name[0] == '.' || fstat(number, &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (info.st_ino != region.kind.inode) continue;
    UniqueFd file = open_file(("/proc/self/fd/" + std::string(entry->d_name)).c_str(), write);
    if (file.valid() && is_same_file(file.get(), region.kind)) return file;
  }
  return {};
}

}  // namespace

UniqueFd file_of(const Region& region, bool write, const char** why) {
  for (const auto& way : {from_map_files, from_path, from_descriptors}) {
    UniqueFd file = way(region, write);
    if (file.valid()) return file;
  }
  *why = region.name.rfind("/dev/zero", 0) == 0
             ? "shared anonymous memory has no name, and this process may not use "
               "/proc/self/map_files (CAP_CHECKPOINT_RESTORE)"
             : "no path and no descriptor of this process leads to the mapped file";
  return {};
}

}  // namespace openmps::client
