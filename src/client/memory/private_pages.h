// SPDX-License-Identifier: Apache-2.0
// Where the pages of a file of ours have taken the place of private ones: that file, and private
// pages again. What the program has put there since is left alone: only mappings that are still of
// the file, at the place in it, are touched, and they keep the protection that they have by now.
#pragma once

#include <cstdint>

#include "base/unique_fd.h"
#include "client/memory/maps.h"
#include "client/memory/page_exchange.h"
#include "cuda/abi.h"

namespace openmps::client {

inline constexpr uint64_t kHugePageBytes = 2ull << 20;  // of x86-64

// A file with so many pages from `offset` on, charged to this process. Huge ones where the system
// gives them. Errors: CUDA_ERROR_OUT_OF_MEMORY, and `why`, a constant text.
CUresult make_shared_pages(uint64_t offset, uint64_t bytes, UniqueFd* file, const char** why);
// They take the place of private ones, with their contents.
ExchangeResult put_shared_pages(const MappedRange& range, int file, uint64_t offset);

// `was`: what the range was mapped as, but for the protection.
// Replaces the pages by private ones with their contents. False: some are still shared, and `why`,
// a constant text, is set.
bool put_private_pages(const MappedRange& was, const char** why);
// In a forked child, of a process that goes on writing: the file's pages, until this process
// writes. Takes no copy.
void copy_on_write(const MappedRange& was, int file);

}  // namespace openmps::client
