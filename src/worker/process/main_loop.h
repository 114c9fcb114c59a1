// SPDX-License-Identifier: Apache-2.0
// The main thread of a worker: takes the server's messages, makes sessions and buries them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/unix_socket.h"
#include "worker/process/session_thread.h"

namespace openmps::worker {

class MainLoop {
 public:
  explicit MainLoop(Environment& environment);
  // Ends all sessions.
  ~MainLoop();

  // Serve until the server has gone (success) or speaks what we don't understand. Sessions are left
  // as they are: the program ends, and with it everything that they hold.
  Status serve();
  // End all sessions and wait for them: soon done once the contexts are lost, when nothing drains.
  void end_all();
  // No session is left, also none on its way out.
  [[nodiscard]] bool idle();

 private:
  Status handle(Packet packet);
  // What keeps one session from opening is told to the server and costs only that session.
  Status open(Packet& packet);
  Status start(const wire::OpenSession& message, Packet& packet, std::shared_ptr<Window> window);
  [[nodiscard]] SessionLimits limits_of(const wire::Grant& grant) const;
  // The group of that number; null: 0. One that is new has these limits.
  [[nodiscard]] std::shared_ptr<SessionGroup> group_of(uint32_t number,
                                                       const wire::ClientLimits& limits);
  void set_limits(SessionGroup& group, const wire::ClientLimits& limits) const;
  Status change(const Packet& packet);
  Status change_group(const Packet& packet);
  Status reserve(const Packet& packet);
  Status pass_descriptor(Packet& packet);
  void close(uint32_t session, CUresult result);
  void wake_closing();
  [[nodiscard]] int longest_wait_ms() const;
  void bury();

  Environment& environment_;
  UniqueFd ended_event_;  // eventfd: some session's thread is at its end
  uint64_t lent_ns_ = 0;  // when to look at SMs that are lent, by now_ns(); 0: when woken
  std::mutex mutex_;
  std::vector<uint32_t> ended_;  // guarded by mutex_
  std::map<uint32_t, std::unique_ptr<SessionThread>> sessions_;
  std::set<uint32_t> closing_;  // those that have been told to end
  std::map<uint32_t, std::weak_ptr<SessionGroup>> groups_;
};

}  // namespace openmps::worker
