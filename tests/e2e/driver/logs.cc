// SPDX-License-Identifier: Apache-2.0
// The log of failed calls. Its texts differ between drivers, so only their form is checked. Run by
// run_e2e.py. usage: drv_logs run|bad
#include <unistd.h>

#include <string>

#include "driver.h"

namespace {

struct Seen {
  int calls = 0;
  std::string last;
};

void count(void* data, CUlogLevel level, char* message, size_t length) {
  auto& seen = *static_cast<Seen*>(data);
  if (level == CU_LOG_LEVEL_ERROR) seen.calls++;
  seen.last.assign(message, length);
}

// CUDA's documentation says that a callback must not call CUDA.
void count_and_fail(void* data, CUlogLevel level, char* message, size_t length) {
  count(data, level, message, length);
  cuMemFree_v2(1);
}

void fail() { cuMemFree_v2(0x1234567); }

size_t lines_in(const std::string& text) {
  size_t lines = 0;
  for (char c : text) lines += c == '\n' ? 1 : 0;
  return lines;
}

// The text that was logged since `iterator`.
std::string dump(CUlogIterator* iterator, size_t room = 25600) {
  std::string text(room, '?');
  size_t size = room;
  CHECK_CU(cuLogsDumpToMemory(iterator, text.data(), &size, 0));
  // NVIDIA's driver (580) does not write to the buffer if there is no text.
  e2e::expect(size == 0 || text[size] == '\0', "the text ends with a null character");
  text.resize(size);
  return text;
}

void memory() {
  CUlogIterator at = 0;
  CHECK_CU(cuLogsCurrent(&at, 0));
  e2e::expect(dump(&at).empty(), "nothing new");
  fail();
  fail();
  const std::string two = dump(&at);
  e2e::expect(lines_in(two) >= 2 && two.back() == '\n', "two failures, two lines");
  e2e::expect(two[0] == '[' && two.find("][CUDA][E] ") != std::string::npos &&
                  two.find("cuMemFree") != std::string::npos,
              "time, thread, source, severity, text");
  e2e::expect(dump(&at).empty(), "the iterator has moved");
  CUlogIterator before = at;
  for (int i = 0; i < 300; i++) fail();
  const std::string all = dump(&before);
  e2e::expect(lines_in(all) <= 101, "a hundred lines and one that says that there were more");
}

void callbacks() {
  Seen seen;
  CUlogsCallbackHandle handle = nullptr;
  CHECK_CU(cuLogsRegisterCallback(count, &seen, &handle));
  fail();
  fail();
  e2e::expect(seen.calls == 2 && seen.last.find("cuMemFree") != std::string::npos, "two calls");
  CHECK_CU(cuLogsUnregisterCallback(handle));
  fail();
  e2e::expect(seen.calls == 2, "none after it was unregistered");
}

// NVIDIA's driver (580) writes beyond a buffer that is too small.
void little_room() {
  CUlogIterator at = 0;
  CHECK_CU(cuLogsCurrent(&at, 0));
  fail();
  char little[4];
  size_t size = sizeof(little);
  e2e::expect_result("a buffer for no message", cuLogsDumpToMemory(&at, little, &size, 0),
                     CUDA_ERROR_INVALID_VALUE);
  e2e::expect(size == 0, "no bytes then");
}

void failure_in_callback() {
  Seen seen;
  CUlogsCallbackHandle handle = nullptr;
  CHECK_CU(cuLogsRegisterCallback(count_and_fail, &seen, &handle));
  fail();
  e2e::expect(seen.calls == 1, "not called for a failure of its own");
  CHECK_CU(cuLogsUnregisterCallback(handle));
}

void file() {
  char path[] = "/tmp/openmps-logs-XXXXXX";
  const int descriptor = mkstemp(path);
  CUlogIterator at = 0;
  CHECK_CU(cuLogsCurrent(&at, 0));
  fail();
  CHECK_CU(cuLogsDumpToFile(&at, path, 0));
  char text[4096] = {};
  const ssize_t bytes = read(descriptor, text, sizeof(text) - 1);
  e2e::expect(bytes > 0 && strstr(text, "cuMemFree") != nullptr, "a file");
  close(descriptor);
  unlink(path);
}

void refused() {
  CUlogIterator at = 0;
  char text[100];
  size_t size = sizeof(text);
  e2e::expect_result("unknown flags", cuLogsCurrent(&at, 1), CUDA_ERROR_INVALID_VALUE);
  e2e::expect_result("no iterator", cuLogsCurrent(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  e2e::expect_result("no buffer", cuLogsDumpToMemory(&at, nullptr, &size, 0),
                     CUDA_ERROR_INVALID_VALUE);
  e2e::expect_result("no path", cuLogsDumpToFile(&at, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  e2e::expect_result("no function", cuLogsRegisterCallback(nullptr, text, nullptr),
                     CUDA_ERROR_INVALID_VALUE);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string group = argc > 1 ? argv[1] : "run";
  {
    e2e::Session session;
    if (group == "run") {
      memory();
      callbacks();
      file();
    } else {
      little_room();
      failure_in_callback();
      refused();
    }
  }
  return e2e::finish();
}
