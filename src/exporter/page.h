// SPDX-License-Identifier: Apache-2.0
// page/index.html, as the build embeds it (page/embed.py).
#pragma once

#include <cstddef>

namespace openmps::exporter {

extern const char* const kPage;
extern const size_t kPageBytes;
// Its Content-Security-Policy: nothing but its own script and styles, by their hashes, and
// requests to this exporter.
extern const char* const kPagePolicy;

}  // namespace openmps::exporter
