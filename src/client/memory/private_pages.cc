// SPDX-License-Identifier: Apache-2.0
// See private_pages.h.
#include "client/memory/private_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/shared_memory.h"

namespace openmps::client {
namespace {

// What of the range is still mapped as it was.
std::vector<MappedRange> still_mapped(const MappedRange& was) {
  std::vector<MappedRange> found;
  visit_regions([&](const MappedRegion& region) {
    if (region.begin >= was.end) return false;
    const uint64_t from = std::max(region.begin, was.begin);
    const uint64_t to = std::min(region.end, was.end);
    const uint64_t offset = was.offset + (from - was.begin);
    if (from < to && region.kind.shared && region.kind.is_of_file_of(was.kind) &&
        region.offset + (from - region.begin) == offset) {
      found.push_back({from, to, region.kind, offset});
    }
    return true;
  });
  return found;
}

// Pages of a file, or private ones, whose offset within a huge page is that of `alike`.
Mapping make_fresh(uint64_t alike, uint64_t bytes, int file, uint64_t offset) {
  void* memory = mmap(nullptr, bytes + kHugePageBytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return {};
  const auto start = reinterpret_cast<uint64_t>(memory);
  const uint64_t skip = (alike - start) % kHugePageBytes;
  if (skip != 0) munmap(memory, skip);
  munmap(reinterpret_cast<void*>(start + skip + bytes), kHugePageBytes - skip);
  Mapping fresh(reinterpret_cast<void*>(start + skip), bytes);
  const int kind = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  if (mmap(fresh.address(), bytes, PROT_READ | PROT_WRITE, kind | MAP_FIXED, file,
           static_cast<off_t>(offset)) == MAP_FAILED) {
    return {};
  }
  if (bytes >= kHugePageBytes) madvise(fresh.address(), bytes, MADV_HUGEPAGE);
  return fresh;
}

ExchangeResult exchange(const MappedRange& range, Mapping fresh) {
  if (!fresh.valid()) return {Exchanged::kOutOfMemory, 0, "no addresses for its pages"};
  const ExchangeResult result = exchange_pages(range, reinterpret_cast<uint64_t>(fresh.address()));
  // What has moved is not there any more.
  const uint64_t rest = fresh.bytes() - result.bytes;
  if (rest != 0) munmap(static_cast<char*>(fresh.address()) + result.bytes, rest);
  fresh.leak();
  return result;
}

// The kernel backs a file with huge pages only if it is asked to.
bool huge_pages_for_the_asking() {
  const UniqueFd file(
      open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_RDONLY | O_CLOEXEC));
  char text[128] = {};
  return file.valid() && read(file.get(), text, sizeof(text) - 1) > 0 &&
         strstr(text, "[advise]") != nullptr;
}

}  // namespace

CUresult make_shared_pages(uint64_t offset, uint64_t bytes, UniqueFd* file, const char** why) {
  const auto fail = [why](const char* reason) {
    *why = reason;
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < offset + bytes) {
    return fail("the limit of file sizes (ulimit -f) is smaller than the memory to register");
  }
  Result<UniqueFd> made = create_shared_file("openmps-registered", offset + bytes);
  if (!made.ok()) return fail("no file can be made for the memory to register");
  if (bytes >= kHugePageBytes && huge_pages_for_the_asking()) {
    Result<Mapping> mapped = map_shared(made->get(), 0, offset + bytes, MapAccess::kReadWrite);
    if (mapped.ok()) {
      madvise(mapped->address(), offset + bytes, MADV_HUGEPAGE);
      madvise(static_cast<char*>(mapped->address()) + offset, bytes, MADV_POPULATE_WRITE);
    }
  }
  if (fallocate(made->get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    return fail("there is no memory for the pages to register");
  }
  *file = std::move(*made);
  return CUDA_SUCCESS;
}

ExchangeResult put_shared_pages(const MappedRange& range, int file, uint64_t offset) {
  return exchange(range, make_fresh(range.begin, range.end - range.begin, file, offset));
}

bool put_private_pages(const MappedRange& was, const char** why) {
  bool all = true;
  for (const MappedRange& range : still_mapped(was)) {
    const ExchangeResult result =
        exchange(range, make_fresh(range.begin, range.end - range.begin, -1, 0));
    if (result.outcome == Exchanged::kAll || result.outcome == Exchanged::kChanged) continue;
    *why = result.why;
    all = false;
  }
  return all;
}

void copy_on_write(const MappedRange& was, int file) {
  for (const MappedRange& range : still_mapped(was)) {
    mmap(reinterpret_cast<void*>(range.begin), range.end - range.begin, range.kind.protection,
         MAP_PRIVATE | MAP_FIXED, file, static_cast<off_t>(range.offset));
  }
}

}  // namespace openmps::client
