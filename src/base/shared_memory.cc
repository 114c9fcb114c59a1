// SPDX-License-Identifier: Apache-2.0
// Anonymous shared memory and owned mappings over memfd_create and mmap.
#include "base/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace openmps {
namespace {

Status system_error(CUresult code, const std::string& what) {
  return Status(code, what + ": " + strerror(errno));
}

Result<Mapping> map(uint64_t address, uint64_t bytes, int protection, int flags, int fd,
                    uint64_t offset, const char* what) {
  void* wanted = reinterpret_cast<void*>(address);
  void* got = mmap(wanted, bytes, protection, flags, fd, static_cast<off_t>(offset));
  if (got == MAP_FAILED) {
    const CUresult code =
        errno == ENOMEM || errno == EEXIST ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_OPERATING_SYSTEM;
    return system_error(code, std::string(what) + " of " + std::to_string(bytes) + " bytes");
  }
  Mapping mapping(got, bytes);
  // Kernels before 4.17 take MAP_FIXED_NOREPLACE as a hint.
  if (address != 0 && got != wanted) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, std::string(what) + ": the address is taken");
  }
  return mapping;
}

}  // namespace

namespace {

constexpr int kUnchangeable = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;

Result<UniqueFd> create_unsealed(const char* name, uint64_t bytes) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return system_error(CUDA_ERROR_OPERATING_SYSTEM, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return system_error(CUDA_ERROR_OUT_OF_MEMORY, "ftruncate");
  }
  return fd;
}

}  // namespace

Result<UniqueFd> create_shared_file(const char* name, uint64_t bytes) {
  Result<UniqueFd> fd = create_unsealed(name, bytes);
  if (!fd.ok()) return fd;
  if (fcntl(fd->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return system_error(CUDA_ERROR_OPERATING_SYSTEM, "sealing a shared file");
  }
  return fd;
}

Result<UniqueFd> create_shown_file(const char* name, uint64_t bytes, Mapping* mapping) {
  Result<UniqueFd> fd = create_unsealed(name, bytes);
  if (!fd.ok()) return fd;
  Result<Mapping> mapped = map_shared(fd->get(), 0, bytes, MapAccess::kReadWrite);
  if (!mapped.ok()) return mapped.status();
  // An older kernel does not know the seal.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (fcntl(fd->get(), F_ADD_SEALS, kSeals | F_SEAL_FUTURE_WRITE) != 0 &&
      fcntl(fd->get(), F_ADD_SEALS, kSeals) != 0) {
    return system_error(CUDA_ERROR_OPERATING_SYSTEM, "sealing a shared file");
  }
  *mapping = std::move(mapped).value();
  return fd;
}

Result<UniqueFd> create_sealed_file(const char* name, std::span<const unsigned char> bytes) {
  Result<UniqueFd> fd = create_unsealed(name, 0);
  if (!fd.ok()) return fd;
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t written = write(fd->get(), bytes.data() + at, bytes.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_error(CUDA_ERROR_OUT_OF_MEMORY, "writing a memory file");
    at += static_cast<size_t>(written);
  }
  if (fcntl(fd->get(), F_ADD_SEALS, kUnchangeable | F_SEAL_SEAL) != 0) {
    return system_error(CUDA_ERROR_OPERATING_SYSTEM, "sealing a memory file");
  }
  return fd;
}

// Private: before Linux 6.7 a file that is sealed against writing can't be mapped shared.
Result<Mapping> map_sealed(int fd, uint64_t bytes) {
  struct stat info {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kUnchangeable) != kUnchangeable || fstat(fd, &info) != 0 ||
      static_cast<uint64_t>(info.st_size) < bytes) {
    return Status(CUDA_ERROR_INVALID_VALUE, "a file that can change, or is too short");
  }
  return map(0, bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0, "mapping a sealed file");
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    address_ = std::exchange(other.address_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

void Mapping::reset() {
  if (address_ != nullptr) munmap(address_, bytes_);
  address_ = nullptr;
}

bool may_be_memory(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return false;
  return !S_ISSOCK(info.st_mode) && !S_ISFIFO(info.st_mode) && !S_ISDIR(info.st_mode);
}

Result<Mapping> map_shared(int fd, uint64_t offset, uint64_t bytes, MapAccess access) {
  const int protection = access == MapAccess::kReadOnly ? PROT_READ : PROT_READ | PROT_WRITE;
  return map(0, bytes, protection, MAP_SHARED, fd, offset, "mapping a shared file");
}

Result<Mapping> map_shared_at(uint64_t address, int fd, uint64_t offset, uint64_t bytes) {
  return map(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, offset,
             "mapping a shared file at an address");
}

void put_into_dumps(uint64_t address, uint64_t bytes) {
  madvise(reinterpret_cast<void*>(address), bytes, MADV_DODUMP);
}

void keep_from_dumps(uint64_t address, uint64_t bytes) {
  madvise(reinterpret_cast<void*>(address), bytes, MADV_DONTDUMP);
}

Status keep_from_children_and_dumps(void* address, uint64_t bytes) {
  for (const int advice : {MADV_DONTFORK, MADV_DONTDUMP}) {
    if (madvise(address, bytes, advice) != 0) {
      return system_error(CUDA_ERROR_OPERATING_SYSTEM, "madvise");
    }
  }
  return Status();
}

Result<Mapping> reserve_addresses(uint64_t address, uint64_t bytes) {
  return map(address, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0,
             "reserving addresses");
}

}  // namespace openmps
