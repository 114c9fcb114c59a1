// SPDX-License-Identifier: Apache-2.0
// See host_pages.h.
#include "worker/memory/host_pages.h"

#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/shared_memory.h"

namespace openmps::worker {
namespace {

constexpr uint64_t kHugePage = 2 * wire::kMiB;  // a huge page's alignment on x86-64

// Part of the range is in the book's addresses.
bool is_of_book(uint64_t begin, uint64_t end) {
  const bool low = begin < wire::kAddressHole && end > wire::kFirstWindow;
  const bool high = begin < wire::kAddressEnd && end > wire::kAddressHoleEnd;
  return low || high;
}

}  // namespace

Result<std::shared_ptr<HostPages>> HostPages::reserve_at(uint64_t address, uint64_t bytes) {
  if (address + bytes < address || is_of_book(address, address + bytes)) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "windows and extents lie there");
  }
  Result<Mapping> reserved = reserve_addresses(address, bytes);
  if (!reserved.ok()) return Status(CUDA_ERROR_OUT_OF_MEMORY, reserved.status().message());
  auto pages = std::make_shared<HostPages>(nullptr, 0, address, bytes);
  reserved->leak();
  return pages;
}

Result<std::shared_ptr<HostPages>> HostPages::reserve(AddressBook& book, uint64_t alike,
                                                      uint64_t bytes) {
  const uint64_t shift = alike % kHugePage;
  const auto reserve = [shift, bytes](uint64_t begin) {
    Result<Mapping> reserved = reserve_addresses(begin + shift, bytes);
    if (reserved.ok()) reserved->leak();
    return reserved.status();
  };
  const Result<uint64_t> claim = book.claim_reserved(
      (shift + bytes + kHugePage - 1) / kHugePage * kHugePage, kHugePage, reserve);
  if (claim.ok()) return std::make_shared<HostPages>(&book, *claim, *claim + shift, bytes);
  return Status(CUDA_ERROR_OUT_OF_MEMORY, "no addresses are left for host memory");
}

Result<std::shared_ptr<HostPages>> HostPages::reserve_again(AddressBook& book, uint32_t session,
                                                            uint64_t address, uint64_t bytes) {
  if (!is_of_book(address, address + bytes)) return reserve_at(address, bytes);
  const uint64_t claim = address - address % kHugePage;
  const uint64_t whole = (address + bytes - claim + kHugePage - 1) / kHugePage * kHugePage;
  if (!book.claim(claim, whole, session)) {
    return Status(CUDA_ERROR_OUT_OF_MEMORY, "the addresses belong to another session");
  }
  Result<Mapping> reserved = reserve_addresses(address, bytes);
  if (!reserved.ok()) {
    book.release(claim);
    return Status(CUDA_ERROR_OUT_OF_MEMORY, reserved.status().message());
  }
  reserved->leak();
  return std::make_shared<HostPages>(&book, claim, address, bytes);
}

HostPages::~HostPages() {
  munmap(reinterpret_cast<void*>(begin_), end_ - begin_);
  if (book_ != nullptr) book_->release(claim_);
}

bool HostPages::is_read_only(uint64_t begin, uint64_t end) const {
  return std::ranges::any_of(
      read_only_, [&](const auto& part) { return part.first < end && begin < part.second; });
}

Status HostPages::map(uint64_t address, uint64_t bytes, int file, uint64_t offset, bool read_only,
                      KeptMemory kept) {
  struct stat info {};
  struct statfs system {};
  // A file system that a user's process serves may never deliver a page, and the driver would wait
  // for the page with its lock held.
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || fstatfs(file, &system) != 0 ||
      system.f_type == FUSE_SUPER_MAGIC) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "host memory of no file that this process maps");
  }
  // mmap() would round the length up and map the page behind the file's end.
  if (system.f_type == HUGETLBFS_MAGIC &&
      (address | bytes | offset) % static_cast<uint64_t>(system.f_bsize) != 0) {
    return Status(CUDA_ERROR_NOT_SUPPORTED, "huge pages can be registered as a whole only");
  }
  const int protection = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  void* start = reinterpret_cast<void*>(address);
  if (mmap(start, bytes, protection, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset)) ==
      MAP_FAILED) {
    const CUresult code = errno == ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    return Status(code, std::string("mapping the program's memory: ") + strerror(errno));
  }
  madvise(start, bytes, MADV_DONTDUMP);
  if (read_only) read_only_.emplace_back(address, address + bytes);
  std::erase_if(mapped_, [&](const Mapped& mapped) {
    return mapped.begin >= address && mapped.end <= address + bytes;
  });
  mapped_.push_back({address, address + bytes, std::move(kept)});
  return Status();
}

}  // namespace openmps::worker
