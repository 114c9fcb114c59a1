// SPDX-License-Identifier: Apache-2.0
// See process_output.h.
#include "worker/printing/process_output.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/mutex.h"

// Sanitizers report a process's death on standard error, too late for a pipe that the process reads
// itself.
extern "C" __attribute__((weak)) void __sanitizer_set_report_fd(void* fd);

namespace openmps::worker {
namespace {

// The default printf FIFO, which the driver writes in one go. Pipes may be that large by default.
constexpr int kPipeBytes = 1 << 20;
// The most text that is kept for clients that do not ask for it: the first part.
constexpr size_t kMostText = 4u << 20;
// The most of standard error that is kept: only the end can be about the fault that is examined.
constexpr size_t kMostErrorText = 64u << 10;

Status failed(const char* call) {
  return Status(CUDA_ERROR_OPERATING_SYSTEM, std::string(call) + ": " + strerror(errno));
}

void write_all(int fd, const char* data, size_t bytes) {
  while (bytes != 0) {
    const ssize_t written = write(fd, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    data += written;
    bytes -= static_cast<size_t>(written);
  }
}

}  // namespace

ProcessOutput::~ProcessOutput() {
  if (!thread_.joinable()) return;
  fflush(stdout);
  dup2(output_.former.get(), STDOUT_FILENO);
  dup2(error_.former.get(), STDERR_FILENO);
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

Status ProcessOutput::redirect(int descriptor, Stream* stream) {
  stream->former = UniqueFd(fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  int ends[2];
  if (!stream->former.valid() || pipe2(ends, O_CLOEXEC) != 0) return failed("pipe");
  stream->reading = UniqueFd(ends[0]);
  const UniqueFd writing(ends[1]);
  // Only the reading end is non-blocking: a writer that finds the pipe full waits for the thread.
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);
  return dup2(ends[1], descriptor) == descriptor ? Status() : failed("dup2");
}

Status ProcessOutput::capture() {
  const MutexLock lock(mutex_);
  stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (!stop_.valid()) return failed("eventfd");
  fflush(stdout);
  OPENMPS_RETURN_IF_ERROR(redirect(STDOUT_FILENO, &output_));
  OPENMPS_RETURN_IF_ERROR(redirect(STDERR_FILENO, &error_));
  if (__sanitizer_set_report_fd != nullptr) {
    __sanitizer_set_report_fd(reinterpret_cast<void*>(static_cast<intptr_t>(error_.former.get())));
  }
  thread_ = std::thread([this] { run(); });
  return Status();
}

// False: there is nothing more now. mutex_ is held.
bool ProcessOutput::read_some(Stream& stream, bool forward) {
  char buffer[16 * 1024];
  const ssize_t got = read(stream.reading.get(), buffer, sizeof(buffer));
  if (got < 0 && errno == EINTR) return true;
  if (got <= 0) return false;
  const auto bytes = static_cast<size_t>(got);
  if (forward) {
    write_all(stream.former.get(), buffer, bytes);
    stream.text.append(buffer, bytes);
    if (stream.text.size() > kMostErrorText) {
      stream.text.erase(0, stream.text.size() - kMostErrorText);
    }
  } else if (stream.text.size() + bytes <= kMostText) {
    stream.text.append(buffer, bytes);
  }
  return true;
}

void ProcessOutput::read_all() {
  while (read_some(error_, true)) {
  }
  while (read_some(output_, false)) {
  }
}

void ProcessOutput::run() {
  pthread_setname_np(pthread_self(), "output");
  pollfd wait[] = {{-1, POLLIN, 0}, {-1, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  {
    const MutexLock lock(mutex_);
    wait[0].fd = output_.reading.get();
    wait[1].fd = error_.reading.get();
  }
  for (;;) {
    if (poll(wait, 3, -1) < 0 && errno != EINTR) return;
    const MutexLock lock(mutex_);
    read_all();
    if (wait[2].revents != 0) return;
  }
}

ProcessOutput::Text ProcessOutput::take() {
  // The driver writes through the C library's buffers or directly.
  fflush(stdout);
  fflush(stderr);
  Text text;
  const MutexLock lock(mutex_);
  if (!thread_.joinable()) return text;
  read_all();
  text.output.swap(output_.text);
  text.error.swap(error_.text);
  return text;
}

}  // namespace openmps::worker
