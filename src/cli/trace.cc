// SPDX-License-Identifier: Apache-2.0
// See trace.h. The file is an array of events in Chrome's format, which Perfetto reads: a process
// for each program, and a lane for each of its streams.
#include "cli/trace.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "base/unix_socket.h"
#include "cli/signals.h"
#include "cupti/describe.h"
#include "cupti/recording.h"
#include "observe/snapshot.h"
#include "wire/control_call.h"
#include "wire/daemon_search.h"
#include "wire/handshake.h"

namespace openmps::cli {
namespace {

using Json = nlohmann::ordered_json;
using cupti::RecordingReader;

// How often the line that says how far it is is renewed.
constexpr int kProgressMs = 200;
// How long a worker may take to begin: CUPTI is attached in less than a second, but the machine may
// be overloaded.
constexpr uint64_t kBeginNs = 20'000 * kNsPerMs;
// How long the workers have at the end to send what they have. While eight programs launch as fast
// as they can that takes up to 6 s (an H200); a worker that is so late is stopped.
constexpr uint64_t kLastPacketsNs = 30'000 * kNsPerMs;
// Of a recording or an answer of the daemon, whichever is longer.
constexpr size_t kMostPacketBytes =
    std::max<size_t>(cupti::kMostPacketBytes, wire::kMaxMessageBytes);
// Programs that have no PID here, and those of other PID namespaces, get numbers that Linux gives
// to no process.
constexpr uint64_t kFirstMadePid = 1u << 22;

// Chrome's unit.
std::string microseconds(uint64_t ns) {
  char text[32];
  snprintf(text, sizeof(text), "%llu.%03u", static_cast<unsigned long long>(ns / 1000),
           static_cast<unsigned>(ns % 1000));
  return text;
}

class TraceFile {
 public:
  explicit TraceFile(FILE* file) : file_(file) { fputs("[", file_); }
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  void add(const RecordingReader::Item& item) {
    switch (item.kind) {
      case RecordingReader::Item::Kind::kSession: return begin(item);
      case RecordingReader::Item::Kind::kFailure: failure_ = *item.text; return;
      case RecordingReader::Item::Kind::kActivity: return write(item);
      default: return;
    }
  }
  void flush() { fflush(file_); }
  // False: not all could be written.
  bool close() {
    fputs("\n]\n", file_);
    return fflush(file_) == 0 && ferror(file_) == 0;
  }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  // "1200 kernels, 3 copies and 1 fill of 2 programs"
  [[nodiscard]] std::string counts() const {
    const auto several = [](uint64_t count, const char* one, const char* many) {
      return std::to_string(count) + " " + (count == 1 ? one : many);
    };
    return several(kernels_, "kernel", "kernels") + ", " + several(copies_, "copy", "copies") +
           " and " + several(fills_, "fill", "fills") + " of " +
           several(named_.size(), "program", "programs");
  }

 private:
  struct Program {
    uint64_t pid = 0;
    std::set<std::pair<uint32_t, uint32_t>> lanes;  // by device and stream
  };

  void event(const Json& json) {
    fprintf(file_, "%s\n%s", is_first_ ? "" : ",",
            json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    is_first_ = false;
  }

  void begin(const RecordingReader::Item& item) {
    Program& program = programs_[{item.writer, item.recorded.session}];
    // A session that has moved has another writer: the same program goes on.
    program.pid = item.pid != 0 ? item.pid : kFirstMadePid + programs_.size();
    if (!named_.insert(program.pid).second) return;
    event({{"ph", "M"},
           {"name", "process_name"},
           {"pid", program.pid},
           {"args", {{"name", item.text == nullptr ? "" : *item.text}}}});
  }

  // Names are the same few again and again.
  const std::string& title_of(const cupti::Activity& activity, const std::string* name) {
    if (activity.kind != cupti::ActivityKind::kKernel || name == nullptr) {
      return other_title_ = cupti::title_of(activity, "");
    }
    const auto [found, is_new] = titles_.try_emplace(name);
    if (is_new) found->second = cupti::title_of(activity, *name);
    return found->second;
  }

  void write(const RecordingReader::Item& item) {
    const cupti::Recorded& recorded = item.recorded;
    const cupti::Activity& activity = recorded.activity;
    Program& program = programs_[{item.writer, recorded.session}];
    // Perfetto wants a number for a lane: no stream of a program has one above these bits.
    const uint64_t lane = static_cast<uint64_t>(activity.device) << 24 | recorded.stream;
    if (program.lanes.insert({activity.device, recorded.stream}).second) {
      event({{"ph", "M"},
             {"name", "thread_name"},
             {"pid", program.pid},
             {"tid", lane},
             {"args",
              {{"name", "GPU " + std::to_string(activity.device) + ", stream " +
                            std::to_string(recorded.stream)}}}});
    }
    std::string arguments;
    for (const auto& [name, value] : cupti::fields_of(activity)) {
      arguments += "\"" + std::string(name) + "\":\"" + value + "\",";
    }
    const uint64_t waited =
        recorded.given_ns == 0 ? 0
                               : activity.begin_ns - std::min(recorded.given_ns, activity.begin_ns);
    arguments += "\"given to the driver before, us\":" + microseconds(waited);
    // Hundreds of thousands come in a second.
    fprintf(file_,
            "%s\n{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"gpu\",\"pid\":%llu,\"tid\":%llu,\"ts\":%s,"
            "\"dur\":%s,\"args\":{%s}}",
            is_first_ ? "" : ",", title_of(activity, item.text).c_str(),
            static_cast<unsigned long long>(program.pid), static_cast<unsigned long long>(lane),
            microseconds(activity.begin_ns).c_str(),
            microseconds(activity.end_ns - activity.begin_ns).c_str(), arguments.c_str());
    is_first_ = false;
    ++(activity.kind == cupti::ActivityKind::kKernel ? kernels_
       : activity.kind == cupti::ActivityKind::kCopy ? copies_
                                                     : fills_);
  }

  FILE* const file_;
  bool is_first_ = true;
  std::map<std::pair<uint64_t, uint32_t>, Program> programs_;  // by writer and session
  std::set<uint64_t> named_;
  std::map<const std::string*, std::string> titles_;  // by the reader's name
  std::string other_title_;
  std::string failure_;
  uint64_t kernels_ = 0;
  uint64_t copies_ = 0;
  uint64_t fills_ = 0;
};

// Reads for a time, which begins when the first writer has begun, and then until nobody writes.
class Reading {
 public:
  // `ending`: can be read once a signal has come. `expects`: somebody is to be recorded now.
  Reading(UniqueFd from, TraceFile& file, uint64_t length_ns, bool expects, int ending)
      : from_(std::move(from)),
        file_(file),
        length_ns_(length_ns),
        until_(now_ns() + length_ns + (expects ? kBeginNs : 0)),
        ending_(ending) {}

  // Both: false: what came was no recording.
  bool take(const std::vector<std::vector<std::byte>>& packets) {
    return std::ranges::all_of(packets, [this](const auto& packet) { return take(packet); });
  }
  bool run(bool shows_progress) {
    const uint64_t begin = now_ns();
    while (now_ns() < until_ || (is_asked_ && now_ns() < until_ + kLastPacketsNs)) {
      const uint64_t left = until_ > now_ns() ? until_ - now_ns() : 0;
      pollfd wait[] = {{from_.get(), POLLIN, 0}, {is_asked_ ? -1 : ending_, POLLIN, 0}};
      poll(wait, 2, is_asked_ ? kProgressMs : std::min<int>(kProgressMs, ms_of(left)));
      if (shows_progress && !is_asked_) {
        fprintf(stderr, "\r%5.1f s: %s ", static_cast<double>(now_ns() - begin) / 1e9,
                file_.counts().c_str());
      }
      if (wait[1].revents != 0) until_ = now_ns();
      if (now_ns() >= until_ && !is_asked_) {
        is_asked_ = true;
        shutdown(from_.get(), SHUT_WR);
      }
      if (wait[0].revents == 0) {
        file_.flush();  // for who reads it meanwhile
        continue;
      }
      Result<Packet> packet = receive_packet(from_.get(), kMostPacketBytes, 0);
      if (packet.status().code() == kNoBufferNow || packet.status().code() == CUDA_ERROR_TIMEOUT) {
        continue;
      }
      if (!packet.ok()) return false;
      if (packet->closed) break;
      if (!take(packet->data)) return false;
      if (!file_.failure().empty()) break;
    }
    if (shows_progress) fputs("\n", stderr);
    return true;
  }
  [[nodiscard]] uint64_t lost() const { return reader_.lost(); }

 private:
  bool take(std::span<const std::byte> packet) {
    std::vector<RecordingReader::Item> items;
    if (!reader_.read(packet, &items).ok()) return false;
    for (const RecordingReader::Item& item : items) {
      file_.add(item);
      const bool begins = item.kind == RecordingReader::Item::Kind::kAnswer && !has_begun_;
      if (begins) until_ = now_ns() + length_ns_;
      has_begun_ |= begins;
    }
    return true;
  }
  static int ms_of(uint64_t ns) { return static_cast<int>(ns / kNsPerMs) + 1; }

  const UniqueFd from_;
  TraceFile& file_;
  RecordingReader reader_;
  const uint64_t length_ns_;
  bool has_begun_ = false;
  uint64_t until_;
  const int ending_;       // can be read once a signal has come
  bool is_asked_ = false;  // the writers
};

// A recording that the daemon has ordered.
struct Begun {
  UniqueFd from;
  bool has_clients = false;
  std::vector<std::vector<std::byte>> early = {};
};

// Tells the daemon to have it recorded: what is recorded comes by the same connection, and may come
// before the daemon's answer. Without a connection: a message says why not.
Begun begin_recording(const std::string& client) {
  Begun begun;
  auto [directory, daemon] = wire::find_daemon();
  if (!daemon.ok()) {
    observe::report_no_daemon(daemon.status());
    return {};
  }
  const std::string command = "trace " + client + (client.empty() ? "" : " ") + "--record";
  Status status = wire::send_command(daemon->get(), command);
  wire::ControlReply reply;
  for (bool more = true; more && status.ok();) {
    Result<Packet> packet = receive_packet(daemon->get(), kMostPacketBytes);
    if (!packet.ok()) {
      status = packet.status();
    } else if (packet->closed) {
      status = Status(CUDA_ERROR_MPS_RPC_FAILURE, "the daemon has gone before it answered");
    } else if (cupti::is_of_recording(packet->data)) {
      begun.early.push_back(std::move(packet->data));
    } else {
      Result<bool> part = wire::read_reply_part(packet->data, &reply);
      status = part.status();
      more = part.ok() && *part;
    }
  }
  if (status.ok() && reply.exit_status == 0) {
    begun.from = std::move(daemon).value();
    begun.has_clients = !reply.text.starts_with("0 ");
    return begun;
  }
  fprintf(stderr, "openmps: %s",
          status.ok() ? reply.text.c_str() : (status.message() + "\n").c_str());
  return {};
}

}  // namespace

int run_trace(const TraceOptions& options) {
  const bool is_stdout = options.output == "-";
  struct Close {
    void operator()(FILE* file) const { fclose(file); }
  };
  std::unique_ptr<FILE, Close> opened;
  if (!is_stdout) {
    opened.reset(fopen(options.output.c_str(), "we"));
    if (opened == nullptr) {
      fprintf(stderr, "openmps: %s: %s\n", options.output.c_str(), strerror(errno));
      return 1;
    }
  }
  const int ending = catch_ending_signals();
  Begun begun = begin_recording(options.client);
  if (!begun.from.valid()) {
    if (!is_stdout) unlink(options.output.c_str());
    return 1;
  }
  TraceFile file(is_stdout ? stdout : opened.get());
  Reading reading(std::move(begun.from), file, static_cast<uint64_t>(options.seconds * 1e9),
                  begun.has_clients, ending);
  const bool is_recording = reading.take(begun.early) && reading.run(isatty(STDERR_FILENO) != 0);
  const bool is_written = file.close();
  if (!is_recording || !file.failure().empty()) {
    fprintf(stderr, "openmps: nothing is recorded: %s\n",
            is_recording ? file.failure().c_str() : "the worker's answer is not understood");
    return 1;
  }
  if (!is_written) {
    fprintf(stderr, "openmps: %s: %s\n", options.output.c_str(), strerror(errno));
    return 1;
  }
  fprintf(stderr, "%s: %s\n", is_stdout ? "trace" : options.output.c_str(), file.counts().c_str());
  if (reading.lost() != 0) {
    fprintf(stderr, "%llu more were lost, because they came faster than they could be read\n",
            static_cast<unsigned long long>(reading.lost()));
  }
  if (!is_stdout) fputs("Open it in https://ui.perfetto.dev\n", stderr);
  return 0;
}

}  // namespace openmps::cli
