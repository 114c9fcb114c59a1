// SPDX-License-Identifier: Apache-2.0
// The environment of the process. Everything in src/ reads it by these functions only
// (tools/check_environment.py), in the libraries that programs load and in our own programs. Any
// thread, as getenv().
//
// A process that has more rights than who started it (AT_SECURE: a setuid or setgid bit, file
// capabilities, a transition of a security module) got its environment from that one. In it every
// variable counts as unset: an environment may name libraries to load, files to write, and users to
// trust.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

namespace openmps {

// The value of a variable; nullptr if it is unset. It is good until the environment is changed.
inline const char* environment_variable(const char* name) { return secure_getenv(name); }

// The value of a variable, or `fallback` if it is unset or empty.
std::string environment_or(const char* name, std::string_view fallback);

// The value that a variable had when the process started, whatever has changed since; "" if it was
// unset.
std::string environment_at_start(std::string_view name);

// Unsets all variables whose names begin with `prefix`. While there is one thread only.
void unset_environment(std::string_view prefix);

}  // namespace openmps
