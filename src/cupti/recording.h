// SPDX-License-Identifier: Apache-2.0
// A recording on its way from a worker to whoever has asked for it: packets of a SOCK_SEQPACKET
// connection, whose other end is the recording's life. Each packet has a head and items. What is
// read is checked; several workers may write into one connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cuda/status.h"
#include "cupti/activity.h"

namespace openmps::cupti {

// Below the least that Linux lets a socket's buffer be by default (net.core.wmem_default, 208 KiB),
// so that several fit.
inline constexpr size_t kMostPacketBytes = 32 * 1024;
// Mangled names of C++ templates reach some thousands of characters; what is longer is cut.
inline constexpr size_t kMostNameBytes = 16 * 1024;

// RecordingWriter::add_answer()
inline constexpr uint64_t kBegun = 0;

// An activity of a session.
struct Recorded {
  uint32_t session = 0;
  uint32_t stream = 0;    // the client's number of the stream; Activity::stream is the driver's
  uint64_t command = 0;   // where the command that gave it ends in the session's ring; 0: not known
  uint64_t given_ns = 0;  // when the driver was given it, by now_ns(); 0: not known
  Activity activity;
};

// What an item of a packet is.
enum class RecordingItem : uint32_t {
  kName = 1,
  kActivity = 2,
  kAnswer = 3,
  kFailure = 4,
  kSession = 5,
};

// Makes packets. One thread at a time.
class RecordingWriter {
 public:
  // `writer`: a number that no other writer of the connection has.
  explicit RecordingWriter(uint64_t writer) : writer_(writer) {}

  void add(const Recorded& recorded, std::string_view name);
  // Behind all that has been added: the reader's question of that number is answered. kBegun: the
  // session is recorded from here on.
  void add_answer(uint64_t number);
  // What follows has activities of this session. `pid`: of its program, as the server knows it.
  void add_session(uint32_t session, uint32_t pid, std::string_view command);
  // Nothing is recorded, because of this.
  void add_failure(std::string_view why);
  // How many activities have been lost so far.
  void set_lost(uint64_t lost) { lost_ = lost; }
  // The packets so far, the last one unfinished or not.
  [[nodiscard]] std::vector<std::vector<std::byte>> take();
  // The size of what take() would return.
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  struct Less {
    using is_transparent = void;
    bool operator()(std::string_view one, std::string_view other) const { return one < other; }
  };
  void begin();
  std::byte* reserve(size_t bytes);
  void add_text(RecordingItem kind, uint32_t number, uint32_t pid, std::string_view text);
  uint32_t number_of(std::string_view name);

  const uint64_t writer_;
  uint64_t lost_ = 0;
  std::map<std::string, uint32_t, Less> names_;
  std::vector<std::vector<std::byte>> packets_;
  size_t bytes_ = 0;
};

// Whether the packet begins like one of a recording, and not like other messages of ours.
bool is_of_recording(std::span<const std::byte> packet);

// Reads packets, in the order in which they come. One thread.
class RecordingReader {
 public:
  struct Item {
    enum class Kind { kActivity, kSession, kAnswer, kFailure };
    Kind kind{};
    uint64_t answer = 0;  // kAnswer: the question
    uint32_t pid = 0;     // kSession
    uint64_t writer = 0;  // a session's number is one of its writer's
    Recorded recorded;    // kActivity; kSession: `session` alone
    // A kernel's name, a session's command, or why there is nothing. As long as the reader exists.
    // Null: none.
    const std::string* text = nullptr;
  };
  // Error: CUDA_ERROR_INVALID_VALUE: no packet of a recording; nothing of it is in `items`.
  Status read(std::span<const std::byte> packet, std::vector<Item>* items);
  // How many activities the writers say have been lost.
  [[nodiscard]] uint64_t lost() const;

 private:
  std::map<std::pair<uint64_t, uint32_t>, std::string> names_;  // by writer and number
  std::list<std::string> texts_;                                // commands, failures
  std::map<uint64_t, uint64_t> lost_;                           // by writer
};

}  // namespace openmps::cupti
