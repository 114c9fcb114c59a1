// SPDX-License-Identifier: Apache-2.0
// Log lines in the format of NVIDIA's MPS.
#include "base/log.h"

#include <sys/time.h>

#include <cerrno>
#include <cstring>
#include <ctime>

#include "base/clock.h"
#include "base/text.h"

namespace openmps {

Log::~Log() {
  if (repeats_ == nullptr) return;
  repeats_->finish([this](const std::string& text) { write_text(text); });
}

void Log::write(std::string_view text) const {
  if (repeats_ == nullptr) {
    write_text(text);
  } else {
    write(kind_of_line(text), text);
  }
}

void Log::write(std::string_view kind, std::string_view text) const {
  if (repeats_ == nullptr) {
    write_text(text);
    return;
  }
  repeats_->pass(kind, text, now_ns(), [this](const std::string& line) { write_text(line); });
}

void Log::write_text(std::string_view text) const {
  if (!fd_.valid()) return;
  size_t start = 0;
  while (true) {
    const size_t end = text.find('\n', start);
    if (end == std::string_view::npos) break;
    write_line(text.substr(start, end - start));
    start = end + 1;
  }
  // The text after the last newline; a closing newline makes no empty entry.
  if (start < text.size() || text.empty()) write_line(text.substr(start));
}

std::string Log::entry_of(std::string_view line) const {
  timeval now{};
  gettimeofday(&now, nullptr);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  char stamp[32];
  strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M:%S", &local);
  std::string entry =
      format_text("[%s.%03ld %s %5d] ", stamp, static_cast<long>(now.tv_usec / 1000),
                  component_.c_str(), static_cast<int>(getpid()));
  entry += printable(line);
  entry += '\n';
  return entry;
}

void Log::write_line(std::string_view line) const {
  const uint64_t lost = lost_.exchange(0, std::memory_order_relaxed);
  const bool torn = torn_.exchange(false, std::memory_order_relaxed);
  std::string entry = torn ? "\n" : "";
  if (lost != 0) {
    entry += entry_of(format_text("%llu lines before this one are lost: %s",
                                  static_cast<unsigned long long>(lost),
                                  strerror(lost_error_.load(std::memory_order_relaxed))));
  }
  entry += entry_of(line);
  errno = ENOSPC;  // if only a part fits
  const ssize_t written = ::write(fd_.get(), entry.data(), entry.size());
  if (written == static_cast<ssize_t>(entry.size())) return;
  lost_error_.store(errno, std::memory_order_relaxed);
  lost_.fetch_add(lost + 1, std::memory_order_relaxed);
  torn_.store(torn || written > 0, std::memory_order_relaxed);
}

}  // namespace openmps
