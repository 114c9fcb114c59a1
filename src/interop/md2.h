// SPDX-License-Identifier: Apache-2.0
// The MD2 message digest (RFC 1319) and HMAC (RFC 2104) over it: what libcudart's integrity table
// uses. Not for security. Plain values; one thread each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace openmps {

// Size of a digest and of a block of MD2.
inline constexpr size_t kMd2Bytes = 16;

using Md2Digest = std::array<uint8_t, kMd2Bytes>;

class Md2 {
 public:
  void add(const void* data, size_t bytes);
  // Ends the message; the object is used up.
  Md2Digest finish();

 private:
  void compress();

  std::array<uint8_t, 3 * kMd2Bytes> state_ = {};
  Md2Digest checksum_ = {};
  std::array<uint8_t, kMd2Bytes> block_ = {};
  size_t used_ = 0;
};

class HmacMd2 {
 public:
  explicit HmacMd2(const Md2Digest& key);
  void add(const void* data, size_t bytes) { inner_.add(data, bytes); }
  Md2Digest finish();

 private:
  Md2Digest key_;
  Md2 inner_;
};

}  // namespace openmps
