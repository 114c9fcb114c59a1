// SPDX-License-Identifier: Apache-2.0
// Whose text is it? The driver prints what kernels of all sessions print to the one standard output
// of this process, when somebody synchronises. So kernels whose image refers to printf run in
// turns: a session holds the turn while such kernels of it are unfinished, and before the turn goes
// on what they printed is taken out of the driver and given to its client. Kernels that do not end
// within a bound lose the turn, not their text: text belongs to whose kernels have just ended, then
// to who has the turn (decision 7). A failed assert() ends the context and names nobody: it goes to
// every session that has launched kernels with asserts. One per worker; any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "wire/handshake.h"
#include "wire/output_ring.h"
#include "worker/device/devices.h"
#include "worker/device/shown.h"
#include "worker/printing/process_output.h"

namespace openmps::worker {

class KernelOutput {
 public:
  // A session. Its members belong to KernelOutput, except where said.
  struct Client {
    const DriverTable* driver = nullptr;
    const Devices* devices = nullptr;
    uint32_t session = 0;
    wire::ExecutorState* shown =
        nullptr;                    // where it shows that it waits for the turn; null: nowhere
    SessionUsage* usage = nullptr;  // where such waits are counted; null: nowhere
    wire::OutputProducer ring;
    std::atomic<bool> asserts{false};  // has launched kernels with asserts; set by its own thread
    std::atomic<uint64_t> texts{0};    // pieces of text that it has printed
    // The last printing kernel of a stream.
    struct Mark {
      CUstream stream;
      uint32_t device;
      CUevent event;
      bool open = false;   // not known to have finished
      bool late = false;   // its session has lost the turn: nobody waits for it
      bool quiet = false;  // launched beside others'
    };
    std::vector<Mark> marks;
    bool registered = false;
    bool holds = false;      // the turn; one session at a time
    bool has_lost = false;   // the turn, once or more
    bool launching = false;  // between begin() and mark() or cancel(): its marks don't tell all
    bool launches_quiet = false;  // what that launch is
    uint64_t since_ns = 0;        // when it took the turn
    // Of the collection under way.
    bool running = false;
    bool finished = false;        // a kernel that had waited for the turn
    bool finished_quiet = false;  // one that had not
  };

  // Standard output and error are taken over from now on. Without this (unit tests) nothing is
  // printed to anybody.
  Status capture() { return process_.capture(); }

  // The session begins to print: with its first kernel that may.
  void add(Client& client);
  // Its work has finished. Gives the events back.
  void remove(Client& client);

  // Before the launch of a kernel that may print: wait for the turn. `quiet`: it has run often
  // enough without a word to be launched beside others'. Gives up when `stop` is set.
  void begin(Client& client, bool quiet, const std::atomic<bool>& stop);
  // Behind that launch, or when it has failed.
  void cancel(Client& client);
  Status mark(Client& client, CUstream stream, uint32_t device);
  // Give the client what its kernels have printed so far; true: some still run.
  bool flush(Client& client);
  // These contexts are lost with this error; clients have not been told yet.
  void context_lost(const DriverTable& driver, std::span<const CUcontext> contexts,
                    CUresult result);

 private:
  void collect();
  void distribute(const std::string& text);
  static Status make_drain(const DriverTable& driver, CUevent* event);
  void drain(const Client& client);
  void lose_turn(Client& client, const Client& to);
  static uint64_t longest_wait_ns(const Client& holder, const Client& next);
  Client* other_holder(const Client& client);
  void show_wait(const Client& client, const Client* holder);

  ProcessOutput process_;
  std::mutex mutex_;
  std::vector<Client*> clients_;       // guarded by mutex_
  std::deque<const Client*> waiting_;  // for the turn, in order; guarded by mutex_
  std::string failures_;               // on standard error; guarded by mutex_
  // By device: an event that has been reached. Synchronising with it returns at once and has the
  // driver print, running kernels' text included. Guarded by mutex_.
  std::array<CUevent, wire::kMaxDevices> drains_{};
};

}  // namespace openmps::worker
