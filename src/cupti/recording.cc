// SPDX-License-Identifier: Apache-2.0
// See recording.h.
#include "cupti/recording.h"

#include <cstring>

#include "base/rounding.h"

namespace openmps::cupti {
namespace {

constexpr uint32_t kMagic = 0x31524d4f;  // "OMR1"

struct PacketHead {
  uint32_t magic = kMagic;
  uint32_t reserved = 0;
  uint64_t writer = 0;
  uint64_t lost = 0;
};

using ItemKind = RecordingItem;

// Before each item. `bytes`: with this head, a multiple of kAlignment.
struct ItemHead {
  ItemKind kind{};
  uint32_t bytes = 0;
};
struct TextItem {       // kName, kSession, kFailure; the text is behind it
  uint32_t number = 0;  // of the name; the session
  uint32_t pid = 0;
  uint64_t bytes = 0;
};
struct ActivityItem {
  uint32_t name = 0;  // 0: none
  uint32_t reserved = 0;
  Recorded recorded;
};
constexpr uint64_t kAlignment = 8;

template <typename T>
std::byte* put(std::byte* to, const T& value) {
  memcpy(to, &value, sizeof(value));
  return to + sizeof(value);
}

// Takes a T from the front of the bytes. False: they are too few.
template <typename T>
bool get(std::span<const std::byte>* from, T* value) {
  if (from->size() < sizeof(T)) return false;
  memcpy(value, from->data(), sizeof(T));
  *from = from->subspan(sizeof(T));
  return true;
}

}  // namespace

void RecordingWriter::begin() {
  packets_.emplace_back();
  packets_.back().reserve(kMostPacketBytes);
  packets_.back().resize(sizeof(PacketHead));
}

std::byte* RecordingWriter::reserve(size_t bytes) {
  if (packets_.empty() || packets_.back().size() + bytes > kMostPacketBytes) begin();
  std::vector<std::byte>& packet = packets_.back();
  const size_t at = packet.size();
  packet.resize(at + bytes);
  bytes_ += bytes;
  return packet.data() + at;
}

uint32_t RecordingWriter::number_of(std::string_view name) {
  if (name.empty()) return 0;
  name = name.substr(0, kMostNameBytes);
  if (const auto found = names_.find(name); found != names_.end()) return found->second;
  const auto number = static_cast<uint32_t>(names_.size() + 1);
  names_.emplace(name, number);
  add_text(ItemKind::kName, number, 0, name);
  return number;
}

void RecordingWriter::add_session(uint32_t session, uint32_t pid, std::string_view command) {
  add_text(ItemKind::kSession, session, pid, command.substr(0, kMostNameBytes));
}

void RecordingWriter::add_failure(std::string_view why) {
  add_text(ItemKind::kFailure, 0, 0, why.substr(0, kMostNameBytes));
}

void RecordingWriter::add_text(ItemKind kind, uint32_t number, uint32_t pid,
                               std::string_view text) {
  const auto bytes = static_cast<uint32_t>(
      round_up(sizeof(ItemHead) + sizeof(TextItem) + text.size(), kAlignment));
  std::byte* to = put(reserve(bytes), ItemHead{kind, bytes});
  to = put(to, TextItem{number, pid, text.size()});
  memcpy(to, text.data(), text.size());
}

void RecordingWriter::add(const Recorded& recorded, std::string_view name) {
  const uint32_t number = number_of(name);
  constexpr uint32_t kBytes = round_up(sizeof(ItemHead) + sizeof(ActivityItem), kAlignment);
  std::byte* to = put(reserve(kBytes), ItemHead{ItemKind::kActivity, kBytes});
  put(to, ActivityItem{.name = number, .recorded = recorded});
}

void RecordingWriter::add_answer(uint64_t number) {
  constexpr uint32_t kBytes = sizeof(ItemHead) + sizeof(number);
  put(put(reserve(kBytes), ItemHead{ItemKind::kAnswer, kBytes}), number);
}

std::vector<std::vector<std::byte>> RecordingWriter::take() {
  for (std::vector<std::byte>& packet : packets_) {
    put(packet.data(), PacketHead{.writer = writer_, .lost = lost_});
  }
  bytes_ = 0;
  return std::exchange(packets_, {});
}

bool is_of_recording(std::span<const std::byte> packet) {
  PacketHead head;
  return get(&packet, &head) && head.magic == kMagic;
}

Status RecordingReader::read(std::span<const std::byte> packet, std::vector<Item>* items) {
  const Status bad(CUDA_ERROR_INVALID_VALUE, "this is no packet of a recording");
  PacketHead head;
  if (!get(&packet, &head) || head.magic != kMagic) return bad;
  std::vector<Item> found;
  while (!packet.empty()) {
    ItemHead item;
    std::span<const std::byte> rest = packet;
    if (!get(&rest, &item) || item.bytes < sizeof(item) || item.bytes > packet.size()) return bad;
    rest = packet.first(item.bytes).subspan(sizeof(item));
    packet = packet.subspan(item.bytes);
    switch (item.kind) {
      case ItemKind::kName:
      case ItemKind::kSession:
      case ItemKind::kFailure: {
        TextItem head_of_text;
        if (!get(&rest, &head_of_text) || head_of_text.bytes > rest.size()) return bad;
        const std::string_view text(reinterpret_cast<const char*>(rest.data()), head_of_text.bytes);
        if (item.kind == ItemKind::kName) {
          names_[{head.writer, head_of_text.number}] = text;
          break;
        }
        const bool is_session = item.kind == ItemKind::kSession;
        found.push_back({.kind = is_session ? Item::Kind::kSession : Item::Kind::kFailure,
                         .pid = head_of_text.pid,
                         .writer = head.writer,
                         .recorded = {.session = head_of_text.number, .activity = {}},
                         .text = &texts_.emplace_back(text)});
        break;
      }
      case ItemKind::kActivity: {
        ActivityItem activity;
        if (!get(&rest, &activity)) return bad;
        const auto name = names_.find({head.writer, activity.name});
        found.push_back({.kind = Item::Kind::kActivity,
                         .writer = head.writer,
                         .recorded = activity.recorded,
                         .text = name == names_.end() ? nullptr : &name->second});
        break;
      }
      case ItemKind::kAnswer: {
        uint64_t number = 0;
        if (!get(&rest, &number)) return bad;
        found.push_back(
            {.kind = Item::Kind::kAnswer, .answer = number, .writer = head.writer, .recorded = {}});
        break;
      }
      default: return bad;
    }
  }
  lost_[head.writer] = head.lost;
  items->insert(items->end(), found.begin(), found.end());
  return Status();
}

uint64_t RecordingReader::lost() const {
  uint64_t all = 0;
  for (const auto& [writer, lost] : lost_) all += lost;
  return all;
}

}  // namespace openmps::cupti
