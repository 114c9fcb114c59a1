// SPDX-License-Identifier: Apache-2.0
// The ring of printed text. See output_ring.h.
#include "wire/output_ring.h"

#include <algorithm>
#include <cstring>

namespace openmps::wire {
namespace {

struct PieceHeader {
  uint32_t kind;
  uint32_t bytes;  // of the text that follows; the next piece begins right behind it
};

void copy_in(unsigned char* ring, uint64_t at, const void* from, uint64_t bytes) {
  const uint64_t offset = at % kOutputTextBytes;
  const uint64_t first = std::min(bytes, kOutputTextBytes - offset);
  memcpy(ring + offset, from, first);
  memcpy(ring, static_cast<const unsigned char*>(from) + first, bytes - first);
}

void copy_out(const unsigned char* ring, uint64_t at, void* to, uint64_t bytes) {
  const uint64_t offset = at % kOutputTextBytes;
  const uint64_t first = std::min(bytes, kOutputTextBytes - offset);
  memcpy(to, ring + offset, first);
  memcpy(static_cast<unsigned char*>(to) + first, ring, bytes - first);
}

}  // namespace

OutputProducer::OutputProducer(const ChannelView& view)
    : control_(&view.output_control()), text_(view.output_text()) {}

void OutputProducer::put(OutputKind kind, std::string_view text) {
  if (control_ == nullptr || text.empty()) return;
  // Pairs with the consumer's release: it has copied out what lies before its head.
  const uint64_t used = tail_ - control_->head.load(std::memory_order_acquire);
  if (used > kOutputTextBytes - sizeof(PieceHeader)) return;  // full, or a head of nonsense
  const uint64_t room = kOutputTextBytes - sizeof(PieceHeader) - used;
  const uint64_t bytes = std::min<uint64_t>(text.size(), room);
  if (bytes == 0) return;
  const PieceHeader header{static_cast<uint32_t>(kind), static_cast<uint32_t>(bytes)};
  copy_in(text_, tail_, &header, sizeof(header));
  copy_in(text_, tail_ + sizeof(header), text.data(), bytes);
  tail_ += sizeof(header) + bytes;
  control_->tail.store(tail_, std::memory_order_release);
}

OutputConsumer::OutputConsumer(const ChannelView& view)
    : control_(&view.output_control()), text_(view.output_text()) {}

bool OutputConsumer::empty() const {
  return control_->head.load(std::memory_order_relaxed) ==
         control_->tail.load(std::memory_order_relaxed);
}

bool OutputConsumer::take(OutputKind* kind, std::string* text) {
  const uint64_t head = control_->head.load(std::memory_order_relaxed);
  // Pairs with the producer's release: the text comes first.
  const uint64_t tail = control_->tail.load(std::memory_order_acquire);
  const uint64_t used = tail - head;
  if (used == 0) return false;
  PieceHeader header{};
  if (used >= sizeof(header) && used <= kOutputTextBytes) {
    copy_out(text_, head, &header, sizeof(header));
  }
  const bool sane = header.bytes != 0 && header.bytes <= used - sizeof(header) &&
                    (header.kind == static_cast<uint32_t>(OutputKind::kOutput) ||
                     header.kind == static_cast<uint32_t>(OutputKind::kError));
  if (!sane) {
    control_->head.store(tail, std::memory_order_release);
    return false;
  }
  *kind = static_cast<OutputKind>(header.kind);
  text->resize(header.bytes);
  copy_out(text_, head + sizeof(header), text->data(), header.bytes);
  control_->head.store(head + sizeof(header) + header.bytes, std::memory_order_release);
  return true;
}

}  // namespace openmps::wire
