// SPDX-License-Identifier: Apache-2.0
// What the clients of a server are granted: their own limits, the limits of their groups, SMs that
// are reserved for them, static partitions. Workers learn of each change here. Used by Server on
// the loop's thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/log.h"
#include "server/groups.h"
#include "server/reservations.h"
#include "server/session_table.h"
#include "server/workers.h"
#include "wire/handshake.h"

namespace openmps::server {

class Grants {
 public:
  // The answer to a query (wire::Answer).
  struct Outcome {
    CUresult result = CUDA_SUCCESS;
    uint32_t amount = 0;
    uint32_t stayed = 0;
    uint64_t moved_bytes = 0;  // as of wire::Answer
    uint64_t stayed_bytes = 0;
  };

  // Borrows everything.
  Grants(const Log& log, SessionTable& sessions, Workers& workers)
      : log_(log), sessions_(sessions), workers_(workers) {}

  // What a new session gets; it joins its group.
  void grant(Session& session);
  // The worker that serves, the session's, keeps the SMs of the client's static partition, if it
  // has one: from the first client of a partition to the last. Errors: those of Reservations.
  Status use_partition(Session& session);
  // A session that had this has been erased.
  void on_session_erased(const wire::Grant& grant);
  // A client's session has ended: what is reserved for it, or for its process if that was the
  // process's last one, is reserved no longer.
  void on_client_gone(uint32_t id, uint32_t pid);

  // kChange: one limit of a client or of a group.
  Outcome change(const wire::Query& query);
  // kReserve. Nothing: the worker has been asked, on_reserved() has the outcome.
  std::optional<Outcome> reserve(const wire::Query& query);
  // The worker's word on a reservation, and the query that waits for it. Nothing: none waits.
  struct Answered {
    uint32_t ticket = 0;
    Outcome outcome;
  };
  std::optional<Answered> on_reserved(const wire::Reserved& reserved);
  // The configuration states other limits of a group.
  void set_group(const wire::SetGroup& message);

  // The reservation that a client may use; 0: none. `session`: 0: it has none yet.
  [[nodiscard]] uint32_t reservation_for(const wire::Admit& admit, uint32_t session) const;
  // Devices of which SMs are reserved, a bit each.
  [[nodiscard]] uint32_t reserved_devices() const { return reservations_.devices(); }
  // The session belongs to another domain than before: SMs are reserved in the common one only.
  void assign_reservation(Session& session) const;
  // A worker of the common domain that begins to serve learns of all reservations.
  void tell_reservations(const Worker& worker) const;
  [[nodiscard]] const Groups& groups() const { return groups_; }

 private:
  Outcome change_group(const wire::Query& query);
  void put_in_force(const wire::ClientLimits& configured, Group& group);
  // The limits of the group were `before`.
  void tell_group(const Group& group, const wire::ClientLimits& before);
  static void tell_session(const Session& session);
  void release(uint32_t number);
  // Reservations have come or gone: sessions change to theirs.
  void assign_reservations();

  const Log& log_;
  SessionTable& sessions_;
  Workers& workers_;
  Groups groups_;
  Reservations reservations_;
};

}  // namespace openmps::server
