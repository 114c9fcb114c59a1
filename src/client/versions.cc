// SPDX-License-Identifier: Apache-2.0
// See versions.h.
#include "client/versions.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace openmps::client {
namespace {

// What is compared at once: memcmp of a page runs at the speed of the memory.
constexpr size_t kPage = 4096;
constexpr size_t kWord = 4;
// A copy of a page costs about as much as this many copies of a word.
constexpr size_t kMostRunsOfAPage = 8;

void append(std::vector<ChangedRun>* runs, const ChangedRun& run) {
  if (!runs->empty() && runs->back().end == run.first) {
    runs->back().end = run.end;
  } else {
    runs->push_back(run);
  }
}

// The runs of a page that begins at `first`.
std::vector<ChangedRun> runs_of_page(const std::byte* now, const std::byte* known, size_t first,
                                     size_t end) {
  std::vector<ChangedRun> runs;
  for (size_t at = first; at < end; at += kWord) {
    const size_t bytes = std::min(kWord, end - at);
    if (memcmp(now + at, known + at, bytes) != 0) append(&runs, {at, at + bytes});
  }
  if (runs.size() > kMostRunsOfAPage) runs = {{runs.front().first, runs.back().end}};
  return runs;
}

uint64_t word_at(const std::byte* bytes) {
  uint64_t word = 0;
  memcpy(&word, bytes, sizeof(word));
  return word;
}

// Never the whole page at once, even if nothing has changed here: another thread may be writing to
// it.
void take_over_page(std::byte* now, const std::byte* known, const std::byte* fresh, size_t bytes) {
  const auto take_bytes = [&](size_t first, size_t end) {
    for (size_t i = first; i < end; ++i) {
      if (fresh[i] != known[i] && now[i] == known[i]) now[i] = fresh[i];
    }
  };
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes; at += sizeof(uint64_t)) {
    const uint64_t before = word_at(known + at);
    if (word_at(fresh + at) == before) continue;
    if (word_at(now + at) == before) {
      memcpy(now + at, fresh + at, sizeof(uint64_t));
    } else {
      take_bytes(at, at + sizeof(uint64_t));
    }
  }
  take_bytes(at, bytes);
}

}  // namespace

std::vector<ChangedRun> changed_runs(const std::byte* now, const std::byte* known, size_t bytes) {
  std::vector<ChangedRun> runs;
  for (size_t at = 0; at < bytes; at += kPage) {
    const size_t end = std::min(at + kPage, bytes);
    if (memcmp(now + at, known + at, end - at) == 0) continue;
    for (const ChangedRun& run : runs_of_page(now, known, at, end)) append(&runs, run);
  }
  return runs;
}

void take_over(std::byte* now, std::byte* known, const std::byte* fresh, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPage) {
    const size_t length = std::min(kPage, bytes - at);
    if (memcmp(fresh + at, known + at, length) == 0) continue;
    take_over_page(now + at, known + at, fresh + at, length);
    memcpy(known + at, fresh + at, length);
  }
}

}  // namespace openmps::client
