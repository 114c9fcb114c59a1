// SPDX-License-Identifier: Apache-2.0
// Anonymous shared memory (memfd) and owned mappings. The server creates the files, client and
// worker map them; sealing keeps a peer from shrinking a file under the others (SIGBUS).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/unique_fd.h"
#include "cuda/status.h"

namespace openmps {

// A sparse memfd of `bytes`, close-on-exec, sealed against shrinking, growing and further seals.
// Pages exist once they are touched. Errors: CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OPERATING_SYSTEM.
Result<UniqueFd> create_shared_file(const char* name, uint64_t bytes);

// One mmap, unmapped on destruction.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* address, uint64_t bytes) : address_(address), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping() { reset(); }

  [[nodiscard]] void* address() const { return address_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] bool valid() const { return address_ != nullptr; }
  void reset();
  // Give up ownership without unmapping (a forked child must not touch its parent's layout).
  void leak() { address_ = nullptr; }

 private:
  void* address_ = nullptr;
  uint64_t bytes_ = 0;
};

// Creates a file that other processes only read: `mapping` is the only writable mapping, and on
// Linux 5.1 and newer no other can be made.
Result<UniqueFd> create_shown_file(const char* name, uint64_t bytes, Mapping* mapping);

// A memfd with these bytes, sealed against any change. Errors: CUDA_ERROR_OUT_OF_MEMORY,
// CUDA_ERROR_OPERATING_SYSTEM.
Result<UniqueFd> create_sealed_file(const char* name, std::span<const unsigned char> bytes);
// Maps the first bytes of such a file for reading, all pages at once. CUDA_ERROR_INVALID_VALUE: it
// is shorter, or its bytes can change.
Result<Mapping> map_sealed(int fd, uint64_t bytes);

// Device memory that programs pass on is a file of the driver, a device or anonymous. False: a
// socket, a pipe or a directory, which can be none.
bool may_be_memory(int fd);

enum class MapAccess { kReadOnly, kReadWrite };

// Map [offset, offset + bytes) of a file anywhere.
Result<Mapping> map_shared(int fd, uint64_t offset, uint64_t bytes, MapAccess access);
// Maps at exactly `address`, over a range that the caller has reserved (replaces what is there).
Result<Mapping> map_shared_at(uint64_t address, int fd, uint64_t offset, uint64_t bytes);
// The range, of whole pages, is not inherited by children that fork() makes, and not written to
// core dumps: reading a sparse file to the end would give each of its holes a page. Errors:
// CUDA_ERROR_OPERATING_SYSTEM.
Status keep_from_children_and_dumps(void* address, uint64_t bytes);
// Pages of such a range are written to core dumps after all, or no longer. An error leaves them as
// they are.
void put_into_dumps(uint64_t address, uint64_t bytes);
void keep_from_dumps(uint64_t address, uint64_t bytes);
// Reserve [address, address + bytes) without access. Fails with CUDA_ERROR_OUT_OF_MEMORY if
// anything of it is in use: nothing is replaced.
Result<Mapping> reserve_addresses(uint64_t address, uint64_t bytes);

}  // namespace openmps
