// SPDX-License-Identifier: Apache-2.0
// Pages of a program's own memory that this process maps as well, so that the driver can register
// them: a range of addresses, the program's own where they are free here, and the files that the
// program has sent for it. It goes with its last owner: the session, or what the driver still has
// of it. Session's thread, but for the end.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/status.h"
#include "worker/memory/address_book.h"

namespace openmps::worker {

class HostPages {
 public:
  // Exactly [address, address + bytes). CUDA_ERROR_OUT_OF_MEMORY: something is there, or the range
  // is one of those that windows and extents are given from.
  static Result<std::shared_ptr<HostPages>> reserve_at(AddressBook& book, uint64_t address,
                                                       uint64_t bytes);
  // Addresses that are free in every client, at the same place within kHugePage as `alike`.
  static Result<std::shared_ptr<HostPages>> reserve(AddressBook& book, uint64_t alike,
                                                    uint64_t bytes);
  HostPages(AddressBook* book, uint64_t claim, uint64_t begin, uint64_t bytes)
      : book_(book), claim_(claim), begin_(begin), end_(begin + bytes) {}
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  [[nodiscard]] uint64_t begin() const { return begin_; }
  [[nodiscard]] uint64_t end() const { return end_; }
  // Some of [begin, end) that lies here is mapped for reading only.
  [[nodiscard]] bool is_read_only(uint64_t begin, uint64_t end) const;
  // Pages of a file, in whole pages of its own. CUDA_ERROR_INVALID_VALUE: no regular file, one of
  // a user's own file system, or it has no such pages.
  Status map(uint64_t address, uint64_t bytes, int file, uint64_t offset, bool read_only);

 private:
  struct ReadOnly {
    uint64_t begin;
    uint64_t end;
  };
  AddressBook* const book_;  // that has the claim; null: it has none
  const uint64_t claim_;
  const uint64_t begin_;
  const uint64_t end_;
  std::vector<ReadOnly> read_only_;
};

using HostPagesList = std::vector<std::shared_ptr<HostPages>>;

}  // namespace openmps::worker
