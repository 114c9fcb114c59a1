// SPDX-License-Identifier: Apache-2.0
// The main thread of a worker: takes the server's messages, makes sessions and reaps them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/mutex.h"
#include "base/unix_socket.h"
#include "wire/handshake.h"
#include "worker/process/session_thread.h"

namespace openmps::worker {

class MainLoop {
 public:
  explicit MainLoop(Environment& environment);
  // Ends all sessions.
  ~MainLoop();

  // Serves until the server has gone (success) or violates the protocol (the error). Sessions are
  // left as they are: the process ends next, and frees everything that they hold.
  Status serve();
  // Ends all sessions and waits for their threads, which are quick once the contexts are lost.
  void end_all();
  // No session is left, not even one that is closing.
  [[nodiscard]] bool idle();

 private:
  [[nodiscard]] uint64_t now_ns() const { return environment_.worker.clock.now_ns(); }
  Status handle(Packet packet);
  // Gives the packet to the handler of its message.
  template <typename Message>
  Status give(Packet& packet, Status (MainLoop::*handler)(const Message&, Packet&));
  // If the session can't open, the server is told and the worker serves on.
  Status open(const wire::OpenSession& message, Packet& packet);
  Status start(const wire::OpenSession& message, Packet& packet, std::shared_ptr<Window> window);
  [[nodiscard]] SessionLimits limits_of(const wire::Grant& grant) const;
  // The group of that number, made with these limits if it is new; null for number 0.
  [[nodiscard]] std::shared_ptr<SessionGroup> group_of(uint32_t number,
                                                       const wire::ClientLimits& limits);
  void set_limits(SessionGroup& group, const wire::ClientLimits& limits) const;
  Status close_session(const wire::CloseSession& message, Packet&);
  Status change(const wire::ChangeSession& message, Packet&);
  Status change_group(const wire::ChangeGroup& message, Packet&);
  Status reserve(const wire::Reserve& message, Packet&);
  Status pass_descriptor(const wire::PassDescriptor& message, Packet& packet);
  Status take_given(const wire::Give& message, Packet& packet);
  Status drop_given(const wire::Forget& message, Packet&);
  Status suspend(const wire::SuspendSession& message, Packet& packet);
  Status note_memory_short(const wire::MemoryShort& message, Packet& packet);
  Status leave(const wire::LeaveSession& message, Packet&);
  Status note_forgotten(const wire::Forgotten& message, Packet&);
  Status answer_probe(const wire::Probe&, Packet&);
  void close(uint32_t session, CUresult result);
  void wake_closing();
  [[nodiscard]] int longest_wait_ms() const;
  void reap();

  Environment& environment_;
  UniqueFd ended_event_;  // eventfd: a session's thread has ended, or partitions are to be serviced
  uint64_t partitions_due_ns_ = 0;  // when partitions are to be serviced next; 0: when woken
  Mutex mutex_{LockRank::kEndedSessions};
  std::vector<uint32_t> ended_ GUARDED_BY(mutex_);
  std::map<uint32_t, std::unique_ptr<SessionThread>> sessions_;
  std::set<uint32_t> closing_;  // sessions that have been told to end
  std::map<uint32_t, std::weak_ptr<SessionGroup>> groups_;
};

}  // namespace openmps::worker
