// SPDX-License-Identifier: Apache-2.0
// MD2 as RFC 1319 describes it, HMAC as RFC 2104 does.
#include "interop/md2.h"

#include <algorithm>
#include <cstring>

namespace openmps {
namespace {

// The permutation of 0..255 that RFC 1319, section 3.2, derives from the digits of pi.
constexpr uint8_t kPi[256] = {
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,
    243, 192, 199, 115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212,
    224, 22,  103, 66,  111, 24,  138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160,
    251, 245, 142, 187, 47,  238, 122, 169, 104, 121, 145, 21,  178, 7,   63,  148, 194, 16,  137,
    11,  34,  95,  33,  128, 127, 93,  154, 90,  144, 50,  39,  53,  62,  204, 231, 191, 247, 151,
    3,   255, 25,  48,  179, 72,  165, 181, 209, 215, 94,  146, 42,  172, 86,  170, 198, 79,  184,
    56,  210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,  100,
    113, 135, 32,  134, 91,  207, 101, 230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246,
    28,  70,  97,  105, 52,  64,  126, 15,  85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249,
    206, 186, 197, 234, 38,  44,  83,  13,  110, 133, 40,  132, 9,   211, 223, 205, 244, 65,  129,
    77,  82,  106, 220, 55,  200, 108, 193, 171, 250, 36,  225, 123, 8,   12,  189, 177, 74,  120,
    136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254, 59,  0,   29,  57,  242, 239, 183, 14,
    102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,  49,  68,  80,  180, 143, 237, 31,
    26,  219, 153, 141, 51,  159, 17,  131, 20,
};

constexpr int kRounds = 18;  // RFC 1319, section 3.4

}  // namespace

void Md2::add(const void* data, size_t bytes) {
  const auto* input = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < bytes; ++i) {
    block_[used_++] = input[i];
    if (used_ == kMd2Bytes) {
      compress();
      used_ = 0;
    }
  }
}

Md2Digest Md2::finish() {
  // 1 to 16 bytes of padding, each with the number of them, then the checksum as a last block.
  const auto padding = static_cast<uint8_t>(kMd2Bytes - used_);
  for (int i = 0; i < padding; ++i) add(&padding, 1);
  const Md2Digest checksum = checksum_;
  add(checksum.data(), checksum.size());
  Md2Digest digest;
  std::copy_n(state_.begin(), digest.size(), digest.begin());
  return digest;
}

void Md2::compress() {
  uint8_t last = checksum_.back();
  for (size_t i = 0; i < kMd2Bytes; ++i) {
    checksum_[i] ^= kPi[block_[i] ^ last];
    last = checksum_[i];
    state_[kMd2Bytes + i] = block_[i];
    state_[2 * kMd2Bytes + i] = state_[i] ^ block_[i];
  }
  uint8_t mixed = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (uint8_t& byte : state_) {
      byte ^= kPi[mixed];
      mixed = byte;
    }
    mixed = static_cast<uint8_t>(mixed + round);
  }
}

HmacMd2::HmacMd2(const Md2Digest& key) : key_(key) {
  Md2Digest inner = key;
  for (uint8_t& byte : inner) byte ^= 0x36;  // ipad of RFC 2104
  inner_.add(inner.data(), inner.size());
}

Md2Digest HmacMd2::finish() {
  const Md2Digest inner = inner_.finish();
  Md2Digest outer_key = key_;
  for (uint8_t& byte : outer_key) byte ^= 0x5c;  // opad of RFC 2104
  Md2 outer;
  outer.add(outer_key.data(), outer_key.size());
  outer.add(inner.data(), inner.size());
  return outer.finish();
}

}  // namespace openmps
