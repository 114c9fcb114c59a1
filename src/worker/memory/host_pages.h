// SPDX-License-Identifier: Apache-2.0
// Pages of a program's own memory that this process maps as well, so that the driver can register
// them: a range of addresses, the program's where those are free here, and the files that the
// program has sent for the range. Unmapped with the last owner: the session or a registration of
// the driver. Session's thread, except the destructor.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/status.h"
#include "worker/core/keeper.h"
#include "worker/memory/address_book.h"

namespace openmps::worker {

class HostPages {
 public:
  // Reserve exactly [address, address + bytes). CUDA_ERROR_OUT_OF_MEMORY: part of the range is in
  // use, or windows and extents are taken from it.
  static Result<std::shared_ptr<HostPages>> reserve_at(uint64_t address, uint64_t bytes);
  // Reserve addresses that are free in every client, with the offset of `alike` within kHugePage.
  static Result<std::shared_ptr<HostPages>> reserve(AddressBook& book, uint64_t alike,
                                                    uint64_t bytes);
  // Reserve what the session had at these addresses in another worker. CUDA_ERROR_OUT_OF_MEMORY:
  // part of them is in use.
  static Result<std::shared_ptr<HostPages>> reserve_again(AddressBook& book, uint32_t session,
                                                          uint64_t address, uint64_t bytes);
  HostPages(AddressBook* book, uint64_t claim, uint64_t begin, uint64_t bytes)
      : book_(book), claim_(claim), begin_(begin), end_(begin + bytes) {}
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  // The session leaves with these addresses for another worker (AddressBook::leave()).
  void leave(uint32_t session) {
    if (book_ != nullptr) std::exchange(book_, nullptr)->leave(claim_, session);
  }

  [[nodiscard]] uint64_t begin() const { return begin_; }
  [[nodiscard]] uint64_t end() const { return end_; }
  // Some pages of [begin, end) are mapped for reading only.
  [[nodiscard]] bool is_read_only(uint64_t begin, uint64_t end) const;
  // Map whole pages of a file. CUDA_ERROR_INVALID_VALUE: it is no regular file, it is on a file
  // system that a user's process serves, or it has no such pages.
  // `kept`: the server keeps the file for the next worker, as long as it is mapped.
  Status map(uint64_t address, uint64_t bytes, int file, uint64_t offset, bool read_only,
             KeptMemory kept);

 private:
  AddressBook* book_;  // in which claim_ is taken; null: there is no claim
  const uint64_t claim_;
  const uint64_t begin_;
  const uint64_t end_;
  std::vector<std::pair<uint64_t, uint64_t>> read_only_;  // begin and end
  struct Mapped {
    uint64_t begin = 0;
    uint64_t end = 0;
    KeptMemory kept;
  };
  std::vector<Mapped> mapped_;
};

using HostPagesList = std::vector<std::shared_ptr<HostPages>>;

}  // namespace openmps::worker
