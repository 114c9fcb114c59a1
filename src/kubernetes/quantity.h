// SPDX-License-Identifier: Apache-2.0
// Amounts as the Kubernetes API writes them: "3Gi", "1500M", "4", "2500m". Pure, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace openmps::kubernetes {

// All of `text` as a whole number, rounded up as Kubernetes does; nothing: it is no amount, is
// negative, or is more than 2^63 - 1.
std::optional<uint64_t> parse_quantity(std::string_view text);

// A number of bytes in the largest binary unit that states it exactly: "3Gi", "1792Mi", "1000".
std::string bytes_quantity(uint64_t bytes);

}  // namespace openmps::kubernetes
