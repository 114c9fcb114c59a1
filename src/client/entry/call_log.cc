// SPDX-License-Identifier: Apache-2.0
// The log of failed calls. See call_log.h; the implementations of cuLogs* are here, too, on the
// program's threads.
#include "client/entry/call_log.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "api/client_hooks.h"
#include "api/client_impl.h"
#include "base/environment.h"
#include "base/mutex.h"
#include "base/thread_end.h"
#include "client/debug.h"
#include "cuda/error_names.h"

namespace openmps::client {
namespace {

constinit CallLog g_log;
// Set by explain_failure() for the call that the thread is in.
constinit thread_local const char* t_reason = nullptr;
// A callback of the program runs: what it fails at is logged, but not told to it.
constinit thread_local bool t_in_callback = false;

// Once per line: programs that fail are slow anyhow.
void write_to_file(const char* line) {
  const char* target = environment_variable("CUDA_LOG_FILE");
  if (target == nullptr || *target == '\0') return;
  const CancellationHeld held;
  const bool to_output = strcmp(target, "stdout") == 0;
  if (to_output || strcmp(target, "stderr") == 0) {
    fprintf(to_output ? stdout : stderr, "%s\n", line);
    return;
  }
  FILE* file = fopen(target, "ae");
  if (file == nullptr) return;
  fprintf(file, "%s\n", line);
  fclose(file);
}

// How the program looks for what a driver has; "no" is an answer.
bool is_question(DriverSymbol symbol) {
  return symbol == DriverSymbol::cuGetProcAddress || symbol == DriverSymbol::cuGetProcAddress_v2 ||
         symbol == DriverSymbol::cuGetExportTable;
}

}  // namespace

void CallLog::add(const char* function, const char* name, const char* message) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm local{};
  localtime_r(&now.tv_sec, &local);
  char line[kLineBytes];
  const int start =
      snprintf(line, sizeof(line), "[%02d:%02d:%02d.%03ld][%ld][CUDA][E] ", local.tm_hour,
               local.tm_min, local.tm_sec, now.tv_nsec / 1'000'000, syscall(SYS_gettid));
  char* text = line + start;
  const size_t room = sizeof(line) - static_cast<size_t>(start);
  const int length = snprintf(text, room, "%s: %s: %s", function, name, message);
  const size_t bytes = std::min(static_cast<size_t>(std::max(length, 0)), room - 1);
  std::array<Callback, kCallbacks> callbacks;
  {
    const MutexLock guard(lock_);
    memcpy(lines_[end_ % kLines], line, static_cast<size_t>(text - line) + bytes + 1);
    ++end_;
    callbacks = callbacks_;
  }
  write_to_file(line);
  if (t_in_callback) return;
  t_in_callback = true;
  for (const Callback& callback : callbacks) {
    if (callback.number == 0) continue;
    char own[kLineBytes];  // it is the callback's to write to
    memcpy(own, text, bytes + 1);
    callback.function(callback.data, CU_LOG_LEVEL_ERROR, own, bytes);
  }
  t_in_callback = false;
}

uint32_t CallLog::end() const {
  const MutexLock guard(lock_);
  return end_;
}

std::string CallLog::lines(uint32_t* from, size_t most, bool* fits) const {
  const MutexLock guard(lock_);
  const uint32_t oldest = end_ - std::min(end_, kLines);
  const uint32_t wanted = from == nullptr ? oldest : std::min(*from, end_);
  uint32_t first = end_;
  size_t bytes = 0;
  const auto bytes_of = [this](uint32_t number) { return strlen(lines_[number % kLines]) + 1; };
  while (first > std::max(wanted, oldest) && bytes + bytes_of(first - 1) <= most) {
    bytes += bytes_of(--first);
  }
  std::string text;
  if (first > wanted || (from == nullptr && oldest > 0)) {
    // Room for the line that says so.
    constexpr char kMissing[] = "Earlier messages are missing.\n";
    while (first < end_ && bytes + strlen(kMissing) > most) bytes -= bytes_of(first++);
    if (first < end_) text = kMissing;
  }
  *fits = first < end_ || wanted == end_;
  for (uint32_t number = first; number < end_; ++number) {
    text += lines_[number % kLines];
    text += '\n';
  }
  if (from != nullptr && *fits) *from = end_;
  return text;
}

CUlogsCallbackHandle CallLog::add_callback(CUlogsCallback function, void* data) {
  const MutexLock guard(lock_);
  for (Callback& callback : callbacks_) {
    if (callback.number != 0) continue;
    callback = {++callbacks_made_, function, data};
    return reinterpret_cast<CUlogsCallbackHandle>(callbacks_made_);
  }
  return nullptr;
}

CUresult CallLog::remove_callback(CUlogsCallbackHandle handle) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock guard(lock_);
  for (Callback& callback : callbacks_) {
    if (callback.number != reinterpret_cast<uint64_t>(handle)) continue;
    callback = Callback();
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// ---- Hooks --------------------------------------------------------------------------------------

void explain_failure(const char* reason) { t_reason = reason; }

void call_failed(DriverSymbol symbol, CUresult result) {
  const char* reason = std::exchange(t_reason, nullptr);
  // "Not ready" is an answer.
  if (result == CUDA_ERROR_NOT_READY) return;
  const cuda::ErrorText* error = cuda::find_error_text(result);
  const char* name = error != nullptr ? error->name : "unknown error";
  debug_line("%s: %s", driver_symbol_name(symbol), name);
  if (is_question(symbol)) return;
  if (reason == nullptr) reason = error != nullptr ? error->text : "";
  g_log.add(driver_symbol_name(symbol), name, reason);
}

namespace impl {

CUresult cuLogsRegisterCallback(CUlogsCallback callbackFunc, void* userData,
                                CUlogsCallbackHandle* callback_out) {
  if (callbackFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUlogsCallbackHandle handle = g_log.add_callback(callbackFunc, userData);
  if (handle == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (callback_out != nullptr) *callback_out = handle;
  return CUDA_SUCCESS;
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback) {
  return g_log.remove_callback(callback);
}

CUresult cuLogsCurrent(CUlogIterator* iterator_out, unsigned int flags) {
  if (iterator_out == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *iterator_out = g_log.end();
  return CUDA_SUCCESS;
}

CUresult cuLogsDumpToFile(CUlogIterator* iterator, const char* pathToFile, unsigned int flags) {
  if (pathToFile == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const CancellationHeld held;
  FILE* file = fopen(pathToFile, "we");
  if (file == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool fits = false;
  const std::string text = g_log.lines(iterator, ~size_t{0}, &fits);
  const bool written = fwrite(text.data(), 1, text.size(), file) == text.size();
  return fclose(file) == 0 && written ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult cuLogsDumpToMemory(CUlogIterator* iterator, char* buffer, size_t* size,
                            unsigned int flags) {
  if (buffer == nullptr || size == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t room = std::min(*size, CallLog::kMostBytes);
  *size = 0;
  if (room == 0) return CUDA_ERROR_INVALID_VALUE;
  bool fits = false;
  const std::string text = g_log.lines(iterator, room - 1, &fits);
  memcpy(buffer, text.data(), text.size());
  buffer[text.size()] = '\0';
  *size = text.size();
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace impl
}  // namespace openmps::client
