// SPDX-License-Identifier: Apache-2.0
// SMs that operators have reserved for clients: for a process, for all of a program, or as a static
// partition for those that name it (docs/decisions/0028, 0030). What is told to a worker is told to
// the next one, too. Used by Server on the loop's thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wire/handshake.h"

namespace openmps::server {

struct Reservation {
  wire::Reserve wish;      // as the workers are told
  uint32_t pid = 0;        // of the client; 0: by
  uint32_t session = 0;    // its session, if it has no PID here; 0: by
  std::string program;     // the file name of argv[0]
  uint32_t ticket = 0;     // of the query that waits for the answer; 0: it has been given
  bool is_static = false;  // of no process or program: those have it that the daemon says

  // A client, for which one may be.
  struct Client {
    uint32_t pid = 0;
    uint32_t session = 0;
    std::string_view command;
  };
  [[nodiscard]] bool is_of(const Client& client) const;
};

class Reservations {
 public:
  // With a number of its own. At most kMost: CUDA_ERROR_OUT_OF_MEMORY.
  Result<Reservation*> add(const wire::Query& query);
  // Of a partition, for its first client. The same errors.
  Result<Reservation*> add(const wire::StaticPartition& partition);
  [[nodiscard]] Reservation* find(uint32_t number);
  [[nodiscard]] Reservation* find(const wire::StaticPartition& partition);
  // For whom the query is, on its device.
  [[nodiscard]] Reservation* find(const wire::Query& query);
  void erase(uint32_t number);
  // Those of that process, or session, which has gone.
  [[nodiscard]] std::vector<uint32_t> numbers_of(uint32_t pid) const;
  [[nodiscard]] std::vector<uint32_t> numbers_of_session(uint32_t session) const;
  // Whose SMs a client has; 0: of none. What a worker has not answered yet is nobody's.
  [[nodiscard]] uint32_t number_for(const Reservation::Client& client) const;
  [[nodiscard]] const std::vector<Reservation>& all() const { return all_; }

 private:
  Result<Reservation*> make();
  static constexpr size_t kMost = 128;  // more than a GPU has groups of SMs

  std::vector<Reservation> all_;
  uint32_t last_ = 0;
};

}  // namespace openmps::server
