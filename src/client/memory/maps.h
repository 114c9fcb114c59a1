// SPDX-License-Identifier: Apache-2.0
// The mappings of this process, as /proc/self/maps tells them, and the files behind shared ones.
// What a mapping is of is known by its file (device and inode) and the place in it, never by its
// address alone: a program may have put something else there. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace openmps::client {

// What a mapping is of, apart from where it lies.
struct MappingKind {
  int protection = 0;   // PROT_*
  bool shared = false;  // MAP_SHARED
  uint64_t device = 0;  // of the file, as the kernel shows it; only compared
  uint64_t inode = 0;   // 0: no file

  bool operator==(const MappingKind&) const = default;
  [[nodiscard]] bool is_of_file_of(const MappingKind& other) const {
    return device == other.device && inode == other.inode;
  }
};

// Addresses, in one or several mappings of that kind.
struct MappedRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  MappingKind kind;
  uint64_t offset = 0;  // into the kind's file, if it has one, of `begin`
};

struct MappedRegion : MappedRange {
  const char* path = nullptr;  // in the line that was parsed, up to its end; "" if there is none
  size_t path_length = 0;
};

// One line of /proc/self/maps, without its newline. False: it is none. Neither allocates nor
// touches thread-local data: it is also called where other threads stand still.
bool parse_maps_line(const char* line, size_t length, MappedRegion* region);

// A region and the path of its file. The kernel adds " (deleted)" to the path of an unlinked file.
struct Region : MappedRegion {
  std::string name;
};
// Those that [begin, end) lies in, in order. Nothing if part of the range is not mapped, or the
// mappings can't be read.
std::vector<Region> regions_of(uint64_t begin, uint64_t end);
// All of them that `wanted(region)` accepts, up to the end of the file. `region.path` is valid
// during the call.
void visit_regions(const std::function<bool(const MappedRegion& region)>& wanted);

// ---- The file of a shared mapping, for another process to map the same pages ------------------

// A new description of the file, for reading and, if `write`, for writing. Invalid: there is no way
// to it, and `why` says so; constant texts. In this order: /proc/self/map_files, where the system
// allows it; the path that the mapping names; a descriptor of this process. Each is taken only if a
// mapping of it is of the same device and inode.
UniqueFd file_of(const Region& region, bool write, const char** why);

}  // namespace openmps::client
