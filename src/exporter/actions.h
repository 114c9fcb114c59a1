// SPDX-License-Identifier: Apache-2.0
// What the page can do to a client, as command lines of the daemon. Pure: a request is JSON from a
// browser, and whatever is in it, the line is one of the few below with numbers in it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cuda/status.h"

namespace openmps::exporter {

// {"action": "terminate" | "suspend" | "resume" | "percentage" | "priority", "server": PID,
// "client": ID, "value": number}, the value for the last two.
// Errors: CUDA_ERROR_INVALID_VALUE with what is wrong.
Result<std::string> command_of(const nlohmann::json& request);

// Whether the daemon's words on that command, which ended with that status, say that it was done.
// terminate_client says 0 in its last line, as NVIDIA's daemon does.
bool has_succeeded(const std::string& command, int exit_status, const std::string& text);

}  // namespace openmps::exporter
