// SPDX-License-Identifier: Apache-2.0
// Counting repeated log lines. See repeat_filter.h.
#include "base/repeat_filter.h"

#include <algorithm>

namespace openmps {

void RepeatFilter::grow(Kind& kind, uint64_t now_ns) {
  const uint64_t more = (now_ns - kind.counted_ns) / kRepeatIntervalNs;
  kind.counted_ns += more * kRepeatIntervalNs;
  kind.allowance = static_cast<uint32_t>(std::min<uint64_t>(kRepeatBurst, kind.allowance + more));
}

void RepeatFilter::write_count(Kind& kind, const Out& out) {
  if (kind.left_out == 0) return;
  out(kind.last_text + " ... " + std::to_string(kind.left_out) + " times");
  kind.left_out = 0;
}

void RepeatFilter::forget_oldest(const Out& out) {
  if (kinds_.size() < kRepeatKinds) return;
  const auto oldest = std::min_element(
      kinds_.begin(), kinds_.end(),
      [](const auto& a, const auto& b) { return a.second.last_ns < b.second.last_ns; });
  write_count(oldest->second, out);
  kinds_.erase(oldest);
}

void RepeatFilter::pass(std::string_view kind, std::string_view text, uint64_t now_ns,
                        const Out& out) {
  for (auto& [name, entry] : kinds_) {
    if (entry.left_out == 0) continue;
    grow(entry, now_ns);
    if (entry.allowance == 0) continue;
    --entry.allowance;
    write_count(entry, out);
  }
  auto found = kinds_.find(kind);
  if (found == kinds_.end()) {
    forget_oldest(out);
    found = kinds_.try_emplace(std::string(kind)).first;
    found->second.counted_ns = now_ns;
  }
  Kind& entry = found->second;
  entry.last_ns = now_ns;
  grow(entry, now_ns);
  if (entry.allowance != 0) {
    --entry.allowance;
    out(std::string(text));
    return;
  }
  ++entry.left_out;
  entry.last_text = text;
}

void RepeatFilter::finish(const Out& out) {
  for (auto& [name, entry] : kinds_) write_count(entry, out);
}

std::string kind_of_line(std::string_view text) {
  std::string kind;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) {
      kind += c;
    } else if (kind.empty() || kind.back() != '#') {
      kind += '#';
    }
  }
  return kind;
}

}  // namespace openmps
