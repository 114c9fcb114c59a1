// SPDX-License-Identifier: Apache-2.0
// See trace.h.
#include "wire/trace.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/environment.h"
#include "base/mutex.h"
#include "base/text.h"
#include "base/thread_end.h"
#include "cuda/error_names.h"

namespace openmps::wire {
namespace {

// A launch takes the driver 3 us; what takes this long has waited for something.
constexpr uint64_t kLongCallNs = 100'000;

// OPENMPS_TRACE_MIN_US: an hour.
constexpr uint64_t kMostMinUs = 3'600'000'000;

// The numbers of lanes that are no thread's; Linux has no more threads than this.
constexpr uint32_t kFirstLane = 1u << 22;

std::string name_of_result(CUresult result) {
  const cuda::ErrorText* known = cuda::find_error_text(result);
  return known != nullptr ? known->name : std::to_string(static_cast<int>(result));
}

// Nanoseconds as microseconds, the viewers' unit.
std::string microseconds(uint64_t ns) {
  char text[32];
  snprintf(text, sizeof(text), "%llu.%03llu", static_cast<unsigned long long>(ns / 1000),
           static_cast<unsigned long long>(ns % 1000));
  return text;
}

// Each with a comma behind it. None has a character that JSON would have to escape.
std::string members_of(const Fields& fields) {
  std::string text;
  for (const auto& [name, value] : fields) {
    text += "\"" + std::string(name) + "\":\"" + value + "\",";
  }
  return text;
}

}  // namespace

struct Trace::Event {
  std::string name;
  Fields fields;
  Fields reply;
  Id stream = 0;  // 0: of no stream
  CUresult result = CUDA_SUCCESS;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
};

Result<std::unique_ptr<Trace>> Trace::from_environment() {
  const char* path = environment_variable("OPENMPS_TRACE");
  if (path == nullptr || *path == '\0') return std::unique_ptr<Trace>();
  const bool json = std::string_view(path).ends_with(".json");
  const std::string min_text = environment_or("OPENMPS_TRACE_MIN_US", "0");
  const std::optional<uint64_t> min_us = parse_unsigned(min_text, kMostMinUs);
  if (!min_us) {
    return invalid_value("OPENMPS_TRACE_MIN_US: '" + min_text + "' is no number up to " +
                         std::to_string(kMostMinUs));
  }
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CLOEXEC;
  // The process that creates the file writes the beginning of the array. The viewers need no end.
  UniqueFd made(open(path, kFlags | O_CREAT | O_EXCL, 0600));
  const bool is_new = made.valid();
  UniqueFd file = is_new ? std::move(made) : UniqueFd(open(path, kFlags));
  if (!file.valid()) {
    return Status(CUDA_ERROR_OPERATING_SYSTEM,
                  std::string("OPENMPS_TRACE: ") + path + ": " + strerror(errno));
  }
  auto trace = std::make_unique<Trace>(std::move(file), json, *min_us * 1000);
  if (is_new && json) trace->append("[\n");
  return trace;
}

Trace::Actor Trace::this_thread() { return {"thread " + std::to_string(syscall(SYS_gettid)), ""}; }

void Trace::command(const Actor& actor, Opcode opcode, std::span<const unsigned char> payload,
                    CUresult result, std::span<const unsigned char> reply, uint64_t begin_ns) {
  const uint64_t end_ns = now_ns();
  write(actor, {name_of(opcode), fields_of(opcode, payload), reply_fields_of(opcode, reply),
                stream_of(opcode, payload), result, begin_ns, end_ns});
}

void Trace::wait(const Actor& actor, Id stream, CUresult result, uint64_t begin_ns) {
  write(actor, {"wait", {{"stream", std::to_string(stream)}}, {}, 0, result, begin_ns, now_ns()});
}

void Trace::driver_call(const char* function, CUresult result, uint64_t begin_ns, uint64_t end_ns) {
  if (end_ns - begin_ns < kLongCallNs) return;
  char name[16] = "";  // as long as Linux has it
  pthread_getname_np(pthread_self(), name, sizeof(name));
  const Actor actor{std::string("driver, ") + name + " " + std::to_string(syscall(SYS_gettid)), ""};
  write(actor, {function, {}, {}, 0, result, begin_ns, end_ns});
}

void Trace::device_work(const std::string& lane, const std::string& title, const Fields& fields,
                        uint64_t begin_ns, uint64_t end_ns) {
  write({lane, ""}, {title, fields, {}, 0, CUDA_SUCCESS, begin_ns, end_ns});
}

void Trace::write(const Actor& actor, const Event& event) {
  if (event.end_ns - event.begin_ns < min_ns_) return;
  const MutexLock lock(lock_);
  if (json_) {
    std::string text = event_on(actor.name, event);
    if (event.stream != 0) {
      text += event_on(actor.streams + "stream " + std::to_string(event.stream), event);
    }
    return append(text);
  }
  char head[64];
  snprintf(head, sizeof(head), "%.6f %d ", static_cast<double>(event.begin_ns) / 1e9, getpid());
  append(head + actor.name + ": " + text_of(event.name, event.fields) + " = " +
         name_of_result(event.result) +
         (event.reply.empty() ? "" : " " + text_of("", event.reply)) + " (" +
         microseconds(event.end_ns - event.begin_ns) + " us)\n");
}

std::string Trace::event_on(const std::string& lane, const Event& event) {
  const std::string process = "\"pid\":" + std::to_string(getpid());
  std::string text;
  const auto [found, is_new] = lanes_.try_emplace(lane, kFirstLane + lanes_.size());
  const std::string where = process + ",\"tid\":" + std::to_string(found->second);
  if (is_new) {
    text = "{\"ph\":\"M\",\"name\":\"thread_name\"," + where + ",\"args\":{\"name\":\"" + lane +
           "\"}},\n";
  }
  text += "{\"ph\":\"X\",\"name\":\"" + event.name + "\"," + where +
          ",\"ts\":" + microseconds(event.begin_ns) +
          ",\"dur\":" + microseconds(event.end_ns - event.begin_ns) + ",\"args\":{";
  text += members_of(event.fields);
  if (!event.reply.empty()) {
    std::string reply = members_of(event.reply);
    reply.pop_back();
    text += "\"reply\":{" + reply + "},";
  }
  return text + "\"result\":\"" + name_of_result(event.result) + "\"}},\n";
}

// In one piece, so that processes that share the file do not mix their lines. A full disk costs the
// trace, not the program.
void Trace::append(const std::string& text) {
  const CancellationHeld held;
  [[maybe_unused]] const ssize_t ignored = ::write(file_.get(), text.data(), text.size());
}

}  // namespace openmps::wire
