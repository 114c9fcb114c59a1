// SPDX-License-Identifier: Apache-2.0
// What has happened in a server, for the daemon (docs/decisions/0055): what the sessions of each
// group have used, those that have ended among them, and events. Used by Server on the loop's
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "server/session_table.h"
#include "wire/handshake.h"

namespace openmps::server {

// Groups whose figures are kept apart. Above that the one without sessions that had one longest ago
// is forgotten: more names than a machine has containers at a time, and 1.2 MB.
inline constexpr size_t kMostGroupTotals = 512;

// An event of a client, or with the session null of none.
wire::Event make_event(wire::EventKind kind, const Session* session, std::string_view text,
                       CUresult result = CUDA_SUCCESS);

class History {
 public:
  struct Group {
    std::string name;
    uint32_t open = 0;       // sessions that are there
    uint64_t sessions = 0;   // those, and those that have ended
    uint64_t last_end = 0;   // in the order of ends
    wire::Usage ended = {};  // of sessions that have ended
  };

  // `tell` sends a message to the daemon, if there is one.
  explicit History(std::function<void(std::span<const std::byte>)> tell =
                       [](std::span<const std::byte>) {})
      : tell_(std::move(tell)) {}

  // A client has its session. Returns the number of its group here, which is not Groups' one.
  uint32_t on_opened(std::string_view group);
  // It has ended.
  void on_closed(uint32_t number, const wire::Usage& used);
  void note(const wire::Event& event) const;
  // To a daemon that has come.
  void tell_all() const;
  // By number, from 1.
  [[nodiscard]] const std::map<uint32_t, Group>& groups() const { return groups_; }
  // The group's row without the sessions that are there.
  [[nodiscard]] static wire::TotalsRow row_of(uint32_t number, const Group& group);

 private:
  [[nodiscard]] uint32_t find(std::string_view name) const;
  void forget_oldest();
  void tell(uint32_t number, const Group& group) const;

  std::function<void(std::span<const std::byte>)> tell_;
  std::map<uint32_t, Group> groups_;
  uint32_t last_ = 0;
  uint64_t ends_ = 0;
};

}  // namespace openmps::server
