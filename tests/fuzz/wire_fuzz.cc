// SPDX-License-Identifier: Apache-2.0
// Fuzz target of the wire decoder: the input is a ring that a hostile client has written. The first
// 8 bytes are the tail, the others are the ring from its start. Every record that the consumer
// takes is decoded as every command. Linked with libFuzzer, or into the unit tests, which run it on
// the corpus in tests/fuzz/corpus/wire.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "wire/codec.h"
#include "wire/command_info.h"
#include "wire/commands.h"
#include "wire/ring.h"

namespace openmps::wire {
namespace {

void* make_channel() {
  void* memory =
      mmap(nullptr, kChannelBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  return memory;
}

// Which commands have been decoded, in the order of wire::Commands.
template <typename... Structs>
std::array<bool, sizeof...(Structs)>& decoded(CommandList<Structs...>) {
  static std::array<bool, sizeof...(Structs)> known{};
  return known;
}

// A decoded tail must lie inside the record; sanitizers see the rest.
template <typename... Structs>
void decode_all(const Record& record, CommandList<Structs...> list) {
  size_t number = 0;
  const auto one = [&]<typename T>(const T*) {
    const T* body = nullptr;
    TailOf<T> tail;
    bool& known = decoded(list)[number++];
    if (!decode(record, &body, &tail).ok()) return;
    known = true;
    for_each_part<TailOf<T>>([&](const auto& part) {
      const auto& span = tail.*part.span;
      const auto* bytes = reinterpret_cast<const unsigned char*>(span.data());
      const size_t count = span.size() * element_bytes(part.span);
      const size_t offset = static_cast<size_t>(bytes - record.payload);
      if (offset > record.payload_bytes || count > record.payload_bytes - offset) abort();
      static volatile unsigned char last;
      for (size_t i = 0; i < count; ++i) last = bytes[i];
      static_cast<void>(last);
    });
  };
  (one(static_cast<const Structs*>(nullptr)), ...);
}

}  // namespace
}  // namespace openmps::wire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace openmps::wire;
  if (size < 8) return 0;
  static void* channel = make_channel();
  const ChannelView view(channel);
  uint64_t tail = 0;
  memcpy(&tail, data, 8);
  memcpy(view.ring_data(), data + 8, std::min<size_t>(size - 8, kRingBytes));
  view.ring_control().head.store(0);
  view.ring_control().tail.store(tail);
  RingConsumer consumer(view);
  // Behind the input, the ring still has bytes of earlier inputs, so the number of records is
  // limited.
  for (int records = 0; records < 64; ++records) {
    Record record;
    const auto taken = consumer.take(&record);
    if (!taken.ok() || !taken.value()) break;
    decode_all(record, Commands());
    const size_t used = std::min<size_t>(record.payload_bytes, 1024);
    if (describe(record.opcode, std::span(record.payload, used)).empty()) abort();
  }
  return 0;
}

// Whether every command has been decoded from some record.
extern "C" bool corpus_is_complete() {
  const auto& known = openmps::wire::decoded(openmps::wire::Commands());
  const auto missing = std::find(known.begin(), known.end(), false);
  if (missing == known.end()) return true;
  printf("no seed of the corpus has command %td of wire::Commands\n", missing - known.begin());
  return false;
}
