// SPDX-License-Identifier: Apache-2.0
// See prints.h.
#include "worker/code/prints.h"

namespace openmps::worker {
namespace {

// After this many launches without any text a kernel that could print is launched without a turn,
// beside those of other sessions: most kernels print only if an error occurs. What it prints later
// is still attributed, exactly unless other sessions' kernels that may print run at that moment.
constexpr uint32_t kQuietLaunches = 16;

}  // namespace

void Prints::join() {
  if (client_.registered) return;
  client_.driver = &core_.driver;
  client_.devices = &core_.devices;
  client_.session = core_.info.id;
  client_.shown = &core_.view.executor();
  client_.usage = &core_.usage;
  client_.ring = wire::OutputProducer(core_.view);
  output_.add(client_);
}

void Prints::prepare(Function& function) {
  join();
  if (function.asserts) client_.asserts.store(true, std::memory_order_relaxed);
  if (!function.prints) return;
  const uint64_t texts = client_.texts.load(std::memory_order_relaxed);
  if (function.texts_seen != texts) {
    function.texts_seen = texts;
    function.quiet_launches = 0;
  }
  const bool quiet = function.quiet_launches >= kQuietLaunches;
  if (!quiet) ++function.quiet_launches;
  output_.begin(client_, quiet, stop_);
}

void Prints::before_graph() {
  if (modules_.any_asserts()) {
    join();
    client_.asserts.store(true, std::memory_order_relaxed);
  }
  if (!modules_.any_prints()) return;
  join();
  const bool quiet = client_.texts.load(std::memory_order_relaxed) == 0;
  output_.begin(client_, quiet, stop_);
}

Status Prints::finish(Status launched, CUstream stream, uint32_t device) {
  if (launched.ok()) return output_.mark(client_, stream, device);
  output_.cancel(client_);
  return launched;
}

Status Prints::handle(const wire::OutputFlush&, ReplyTo<wire::OutputFlush> reply) {
  const bool pending = output_.flush(client_);
  reply.put(wire::OutputFlush::Reply{pending ? 1u : 0u});
  return Status();
}

}  // namespace openmps::worker
