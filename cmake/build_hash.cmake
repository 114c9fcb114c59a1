# SPDX-License-Identifier: Apache-2.0
# Writes the header with the number that identifies both descriptions of the wire: the driver API's
# (api/*.toml) and the commands' (api/commands/*.toml, src/wire/*.h, and the structures of CUDA that
# travel in them).
# Comments and blanks don't count. Run by the build: cmake -DOUTPUT=... -DSOURCES=a,b -P build_hash.cmake
cmake_minimum_required(VERSION 3.25)
string(REPLACE "," ";" sources "${SOURCES}")
set(text "")
foreach(source IN LISTS sources)
  file(READ ${source} content)
  string(REGEX REPLACE "//[^\n]*" "" content "${content}")
  string(REGEX REPLACE "\n *#[^\n]*" "\n" content "${content}")
  string(REGEX REPLACE "[ \t\n]+" " " content "${content}")
  string(APPEND text "${content}")
endforeach()
string(SHA256 hash "${text}")
string(SUBSTRING ${hash} 0 16 hash)
# An unchanged header is left alone, so that nothing is rebuilt for a comment.
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "// SPDX-License-Identifier: Apache-2.0
// Made by cmake/build_hash.cmake; do not edit.
#pragma once

#include <cstdint>

namespace openmps::wire {

// Of the driver API's description and of the commands': the same in all that may speak to each
// other (wire/build.h).
inline constexpr uint64_t kBuildHash = 0x${hash};

}  // namespace openmps::wire
")
