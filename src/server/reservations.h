// SPDX-License-Identifier: Apache-2.0
// SMs that operators have reserved: for a process, for all clients of a program, or as a static
// partition for the clients that name it (docs/decisions/0028, 0030). Each worker is told all of
// them. Used by Grants on the loop's thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wire/handshake.h"

namespace openmps::server {

struct Reservation {
  wire::Reserve wish;      // as the workers are told
  uint32_t pid = 0;        // of the client; 0: by session
  uint32_t session = 0;    // of the client, if the daemon can't see its PID; 0: by program
  std::string program;     // the file name of argv[0]
  uint32_t ticket = 0;     // of the query that waits for the worker's answer; 0: answered
  bool is_static = false;  // a static partition: for the clients that the daemon assigns

  // What identifies a client.
  struct Client {
    uint32_t pid = 0;
    uint32_t session = 0;
    std::string_view command;
  };
  [[nodiscard]] bool is_of(const Client& client) const;
};

class Reservations {
 public:
  // Adds a reservation with a new number. CUDA_ERROR_OUT_OF_MEMORY: there are kMost.
  Result<Reservation*> add(const wire::Query& query);
  // Adds a static partition, for its first client. CUDA_ERROR_OUT_OF_MEMORY: there are kMost.
  Result<Reservation*> add(const wire::StaticPartition& partition);
  [[nodiscard]] Reservation* find(uint32_t number);
  [[nodiscard]] Reservation* find(const wire::StaticPartition& partition);
  // The reservation of the client or program that the query names, on the query's device.
  [[nodiscard]] Reservation* find(const wire::Query& query);
  void erase(uint32_t number);
  // The reservations of a process, or of a session, that has gone.
  [[nodiscard]] std::vector<uint32_t> numbers_of(uint32_t pid) const;
  [[nodiscard]] std::vector<uint32_t> numbers_of_session(uint32_t session) const;
  // The number of the reservation that a client uses; 0: none. A reservation is not used before the
  // worker has answered.
  [[nodiscard]] uint32_t number_for(const Reservation::Client& client) const;
  [[nodiscard]] const std::vector<Reservation>& all() const { return all_; }
  // Of which SMs are reserved, a bit each.
  [[nodiscard]] uint32_t devices() const;

 private:
  Result<Reservation*> make();
  static constexpr size_t kMost = 128;  // more than a GPU has groups of SMs

  std::vector<Reservation> all_;
  uint32_t last_ = 0;
};

}  // namespace openmps::server
