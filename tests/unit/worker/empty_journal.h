// SPDX-License-Identifier: Apache-2.0
// The journal of a session that has just begun, as the server makes it.
#pragma once

#include <utility>

#include "base/shared_memory.h"
#include "base/unique_fd.h"
#include "wire/journal.h"

namespace openmps::worker {

inline UniqueFd make_empty_journal() {
  UniqueFd file = std::move(create_shared_file("test-journal", wire::kJournalBytes)).value();
  const Mapping page =
      std::move(map_shared(file.get(), 0, wire::kJournalStart, MapAccess::kReadWrite)).value();
  auto& header = *static_cast<wire::JournalHeader*>(page.address());
  header.magic = wire::kJournalMagic;
  header.version = wire::kProtocolVersion;
  header.extents[0].begin = header.extents[0].end = wire::kJournalStart;
  return file;
}

}  // namespace openmps::worker
