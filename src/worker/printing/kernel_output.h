// SPDX-License-Identifier: Apache-2.0
// Attributes text that kernels print to sessions. The driver prints the text of all sessions'
// kernels to the one standard output of this process, when any thread synchronises. So kernels
// whose image refers to printf run in turns: a session holds the turn while such kernels of it are
// unfinished, and before the turn passes on, the text that they printed is taken from the driver
// and given to the session's client. A session whose kernels do not end within a bound loses the
// turn, not the text: text belongs to sessions whose kernels have just ended, then to the session
// that has the turn (decision 7). A failed assert() ends the context and names no kernel: its text
// goes to every session that has launched kernels with asserts. One per worker; any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "wire/handshake.h"
#include "wire/output_ring.h"
#include "worker/device/devices.h"
#include "worker/device/shown.h"
#include "worker/printing/process_output.h"

namespace openmps::worker {

class KernelOutput {
 public:
  // A session. Its members belong to KernelOutput, except where a comment says otherwise.
  struct Client {
    const DriverTable* driver = nullptr;
    const Devices* devices = nullptr;
    uint32_t session = 0;
    wire::ExecutorState* shown = nullptr;  // where its wait for the turn is shown; null: nowhere
    SessionUsage* usage = nullptr;  // where its waits for the turn are counted; null: nowhere
    wire::OutputProducer ring;
    std::atomic<bool> asserts{false};  // it has launched kernels with asserts; set by its thread
    std::atomic<uint64_t> texts{0};    // pieces of text that it has printed
    // The last printing kernel of a stream.
    struct Mark {
      CUstream stream;
      uint32_t device;
      CUevent event;
      bool open = false;   // not known to have finished
      bool late = false;   // its session has lost the turn while it ran: it is not waited for
      bool quiet = false;  // launched without the turn
    };
    std::vector<Mark> marks;
    bool registered = false;
    bool holds = false;     // the turn; one session at a time
    bool has_lost = false;  // the turn, once or more often
    bool launching =
        false;  // between begin() and mark() or cancel(): marks do not cover all its kernels
    bool launches_quiet = false;  // that launch is without the turn
    uint64_t since_ns = 0;        // when it got the turn
    // Of the collection in progress.
    bool running = false;
    bool finished = false;        // a kernel that had the turn has finished
    bool finished_quiet = false;  // one without the turn has
  };

  explicit KernelOutput(const Clock& clock) : clock_(clock) {}

  // Take over standard output and standard error. Without this (unit tests) no text is collected.
  Status capture() { return process_.capture(); }

  // Add a session, before its first kernel that may print.
  void add(Client& client);
  // Remove a session whose work has ended. Releases the events.
  void remove(Client& client);

  // Before the launch of a kernel that may print: wait for the turn. `quiet`: it has run often
  // enough without text to be launched without the turn. Gives up when `stop` is set.
  void begin(Client& client, bool quiet, const std::atomic<bool>& stop);
  // After that launch; cancel(): it has failed.
  void cancel(Client& client);
  Status mark(Client& client, CUstream stream, uint32_t device);
  // Give the client the text that its kernels have printed so far. True: some still run.
  bool flush(Client& client);
  // The contexts are lost with this error, before clients are told.
  void context_lost(const DriverTable& driver, std::span<const CUcontext> contexts,
                    CUresult result);

 private:
  void collect() REQUIRES(mutex_);
  void distribute(const std::string& text) REQUIRES(mutex_);
  static Status make_drain(const DriverTable& driver, CUevent* event);
  void drain(const Client& client) REQUIRES(mutex_);
  void lose_turn(Client& client, const Client& to) REQUIRES(mutex_);
  static uint64_t longest_wait_ns(const Client& holder, const Client& next);
  Client* other_holder(const Client& client) REQUIRES(mutex_);
  void show_wait(const Client& client, const Client* holder) REQUIRES(mutex_);

  const Clock& clock_;
  ProcessOutput process_;
  Mutex mutex_{LockRank::kKernelOutput};
  std::vector<Client*> clients_ GUARDED_BY(mutex_);
  std::deque<const Client*> waiting_ GUARDED_BY(mutex_);  // for the turn, in order
  std::string failures_ GUARDED_BY(mutex_);               // text on standard error
  // By device: an event that has been reached. Synchronising with it returns at once and has the
  // driver print, running kernels' text included.
  std::array<CUevent, wire::kMaxDevices> drains_ GUARDED_BY(mutex_){};
};

}  // namespace openmps::worker
