// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES, read as NVIDIA's driver reads it. One parser for the client library, the
// server and softgpu. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/status.h"

namespace openmps::cuda {

// "GPU-008cbaa3-6cdc-9444-312b-2ca50d63b155", as nvidia-smi -L prints it; "MIG-..." of a MIG
// instance, which the device's name tells.
[[nodiscard]] std::string uuid_text(std::span<const unsigned char, 16> uuid,
                                    std::string_view device_name);

// The devices that the program sees, as indices into `uuids` (texts of uuid_text(), in the
// machine's order), in the order in which it sees them. `text`: the variable's value; null: it is
// not set, and all are visible.
//
// The list is of numbers or of UUIDs, as its first entry is. It ends at the first entry that is not
// of that kind or names no device. Of a number the leading digits count ("0 ", "0x0" and "0.5" are
// 0), of a UUID the leading hexadecimal digits, in either case, where they are no other device's.
// Errors: CUDA_ERROR_INVALID_DEVICE: one device is named twice; CUDA_ERROR_NO_DEVICE: none is left.
[[nodiscard]] Result<std::vector<uint32_t>> visible_devices(const char* text,
                                                            std::span<const std::string> uuids);

}  // namespace openmps::cuda
