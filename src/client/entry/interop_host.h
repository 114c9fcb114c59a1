// SPDX-License-Identifier: Apache-2.0
// Connects the export tables (src/interop) to the session. Called when the mode is decided.
#pragma once

namespace openmps::client {

void install_interop_host();

}  // namespace openmps::client
