// SPDX-License-Identifier: Apache-2.0
// Whose text is it? The driver prints what kernels of all sessions print to the one standard output
// of this process, when somebody synchronises. So kernels whose image refers to printf run in
// turns: a session holds the turn while such kernels of it are unfinished, and before the turn goes
// on what they printed is taken out of the driver and given to its client (decision 7). A failed
// assert() ends the context and names nobody: it goes to every session that has launched kernels
// with asserts. One per worker; any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "wire/output_ring.h"
#include "worker/devices.h"
#include "worker/process_output.h"

namespace openmps::worker {

class KernelOutput {
 public:
  // A session. Its members belong to KernelOutput, except where said.
  struct Client {
    const DriverTable* driver = nullptr;
    const Devices* devices = nullptr;
    wire::OutputProducer ring;
    std::atomic<bool> asserts{false};  // has launched kernels with asserts; set by its own thread
    std::atomic<uint64_t> texts{0};    // pieces of text that it has printed
    // The last printing kernel of a stream.
    struct Mark {
      CUstream stream;
      uint32_t device;
      CUevent event;
      bool open;  // not known to have finished
    };
    std::vector<Mark> marks;
    bool registered = false;
    bool holds = false;      // the turn
    bool launching = false;  // between begin() and mark() or cancel(): its marks do not tell all
    uint64_t since_ns = 0;   // when it took the turn
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
  // Give the client what its finished kernels have printed; true: others still run.
  bool flush(Client& client);
  // The contexts are lost with this error; clients have not been told yet.
  void context_lost(const DriverTable& driver, const Devices& devices, CUresult result);

 private:
  bool settle(Client& client);
  void distribute();
  [[nodiscard]] bool is_free_for(const Client& client, bool* printer);

  ProcessOutput process_;
  std::mutex mutex_;
  std::vector<Client*> clients_;       // guarded by mutex_
  std::deque<const Client*> waiting_;  // for the turn, in order; guarded by mutex_
  std::string failures_;               // on standard error; guarded by mutex_
};

}  // namespace openmps::worker
