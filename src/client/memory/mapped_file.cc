// SPDX-License-Identifier: Apache-2.0
// See mapped_file.h.
#include "client/memory/mapped_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace openmps::client {
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
