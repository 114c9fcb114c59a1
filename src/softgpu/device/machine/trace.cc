// SPDX-License-Identifier: Apache-2.0
// Writer of the Chrome-trace file. One write() per event: appends of processes do not mix.
#include "softgpu/device/machine/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace openmps::softgpu {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
  }
  return out + "\"";
}

void append(int fd, const std::string& line) {
  // A full disk only loses trace lines.
  [[maybe_unused]] ssize_t written = write(fd, line.data(), line.size());
}

}  // namespace

void Trace::open(const std::string& path) {
  if (path.empty()) return;
  file_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  struct stat facts {};
  if (enabled() && fstat(file_.get(), &facts) == 0 && facts.st_size == 0) {
    append(file_.get(), "[\n");
  }
}

void Trace::event(char phase, const char* category, const std::string& name,
                  const std::string& lane, uint64_t start_ns, uint64_t end_ns,
                  const std::string& arguments) {
  if (!enabled()) return;
  char numbers[160];
  snprintf(numbers, sizeof numbers, "\"ph\":\"%c\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":%d", phase,
           static_cast<double>(start_ns) / 1e3, static_cast<double>(end_ns - start_ns) / 1e3,
           static_cast<int>(getpid()));
  append(file_.get(), "{\"name\":" + quoted(name) + ",\"cat\":\"" + category + "\"," + numbers +
                          ",\"tid\":" + quoted(lane) +
                          ",\"args\":{\"sequence\":" + std::to_string(sequence_++) +
                          (arguments.empty() ? "" : ",") + arguments + "}},\n");
}

}  // namespace openmps::softgpu
