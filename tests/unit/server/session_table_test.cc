// SPDX-License-Identifier: Apache-2.0
// Address windows and IDs of sessions.
#include "server/session_table.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "base/text.h"
#include "server/domain.h"
#include "server/worker_state.h"
#include "wire/journal.h"

namespace openmps::server {
namespace {

Domain common{std::string(wire::kCommonDomain)};

TEST(SessionTable, FillsTheHeaderOfTheHostFile) {
  SessionTable table;
  Result<Session*> made = table.create(wire::Admit{}, common);
  ASSERT_TRUE(made.ok()) << made.status().message();
  Result<Mapping> other = map_shared((*made)->host_file.get(), 0, 4096, MapAccess::kReadOnly);
  ASSERT_TRUE(other.ok());
  const wire::ChannelHeader& header = wire::ChannelView(other->address()).header();
  EXPECT_EQ(header.magic, wire::kMagic);
  EXPECT_EQ(header.version, wire::kProtocolVersion);
  EXPECT_EQ(header.session, (*made)->id);
  EXPECT_EQ(header.window_base, wire::window_base((*made)->window));
  EXPECT_EQ(header.status.load(), CUDA_SUCCESS);
}

TEST(SessionTable, GivesEachWindowToOneSessionAndRefusesFurtherOnes) {
  SessionTable table;
  std::set<uint32_t> windows;
  std::set<uint32_t> ids;
  for (uint32_t i = 0; i < wire::kMaxWindows; ++i) {
    Result<Session*> made = table.create(wire::Admit{}, common);
    ASSERT_TRUE(made.ok()) << made.status().message();
    windows.insert((*made)->window);
    ids.insert((*made)->id);
  }
  EXPECT_EQ(windows.size(), wire::kMaxWindows);
  EXPECT_EQ(ids.size(), wire::kMaxWindows);
  Result<Session*> more = table.create(wire::Admit{}, common);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.status().code(), CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);

  const uint32_t freed = table.find(17)->window;
  table.erase(17);
  Result<Session*> again = table.create(wire::Admit{}, common);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ((*again)->window, freed);
  EXPECT_FALSE(ids.contains((*again)->id)) << "an ID must not be used twice";
}

// A container that starts programs without end does not keep the others out.
TEST(SessionTable, AGroupWithManyClientsLeavesRoomForOthers) {
  SessionTable table;
  const auto join = [&](std::string_view group) {
    wire::Admit admit{};
    fill_field(admit.group, group);
    return table.create(admit, common).status();
  };
  for (uint32_t i = 0; i < wire::kMaxWindows - kKeptWindows; ++i) {
    ASSERT_TRUE(join("crowd").ok()) << i;
  }
  const Status refused = join("crowd");
  EXPECT_EQ(refused.code(), CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
  EXPECT_NE(refused.message().find("are for groups with fewer than 4"), std::string::npos)
      << refused.message();
  for (uint32_t i = 0; i < kFewClients; ++i) EXPECT_TRUE(join("pod").ok()) << i;
  EXPECT_FALSE(join("pod").ok());
  // Programs of no group can use all that is there.
  for (uint32_t i = 0; i < kKeptWindows - kFewClients; ++i) EXPECT_TRUE(join("").ok()) << i;
  EXPECT_FALSE(join("").ok());
  EXPECT_FALSE(join("third").ok());
}

TEST(SessionTable, AWindowIsFreeWhenSessionAndWorkerAreDoneWithIt) {
  SessionTable table;
  const Worker worker;
  const Worker other;
  const auto open = [&] {
    Session& session = *table.create(wire::Admit{}, common).value();
    session.worker = const_cast<Worker*>(&worker);
    table.lend_window(session);
    return std::pair(session.id, session.window);
  };
  const auto [first, window] = open();
  table.erase(first);
  EXPECT_EQ(table.kept_windows(worker), 1u);
  const auto [second, next] = open();
  EXPECT_NE(next, window) << "the worker still uses the window";
  EXPECT_FALSE(table.return_window(window, other));
  EXPECT_FALSE(table.return_window(wire::kMaxWindows, worker));
  EXPECT_TRUE(table.return_window(window, worker));
  EXPECT_FALSE(table.return_window(window, worker)) << "it was returned before";
  EXPECT_EQ(open().second, window);
  // The worker returns the window before the session ends, and then all windows at once.
  EXPECT_TRUE(table.return_window(next, worker));
  EXPECT_NE(open().second, next) << "the window's session has not ended";
  table.erase(second);
  EXPECT_EQ(open().second, next);
  for (const uint32_t id : table.ids_of(worker)) table.erase(id);
  EXPECT_EQ(table.kept_windows(worker), 3u);
  table.return_windows(worker);
  EXPECT_EQ(table.kept_windows(worker), 0u);
  EXPECT_EQ(open().second, window);
}

TEST(SessionTable, TheFirstStatusIsKeptAndEachStatusWakesWaiters) {
  SessionTable table;
  Session& session = *table.create(wire::Admit{}, common).value();
  session.end_with(CUDA_ERROR_ILLEGAL_ADDRESS);
  session.end_with(CUDA_ERROR_MPS_RPC_FAILURE);
  EXPECT_EQ(session.header().status.load(), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(session.header().wake_epoch.load(), 2u);
}

// A new worker chooses other ones, so that what comes from another worker finds its addresses free.
TEST(SessionTable, PlacesAreThoseOfAllJournals) {
  SessionTable table;
  Session& one = *table.create(wire::Admit{}, common).value();
  Session& other = *table.create(wire::Admit{}, common).value();
  const auto journal_of = [](const Session& session) {
    return static_cast<wire::JournalHeader*>(session.journal_page.address());
  };
  EXPECT_EQ(table.places(), 0u);
  journal_of(one)->places = 1;
  journal_of(other)->places = 6;
  EXPECT_EQ(table.places(), 7u);
  table.erase(one.id);
  EXPECT_EQ(table.places(), 6u);
}

TEST(AddressPlaces, AreDisjointAndReachTheEnd) {
  const uint64_t end = wire::place_end(0);
  EXPECT_EQ(end, wire::kAddressEnd);
  EXPECT_EQ(wire::places_of(end - 1, end), 1u);
  const uint64_t border = wire::place_end(1);
  EXPECT_EQ(wire::places_of(border, border + 1), 1u);
  EXPECT_EQ(wire::places_of(border - 1, border), 2u);
  EXPECT_EQ(wire::places_of(border - 1, border + 1), 3u);
  EXPECT_EQ(wire::places_of(wire::place_end(wire::kAddressPlaces), end), ~0u);
  EXPECT_EQ(wire::places_of(wire::kFirstWindow, wire::place_end(wire::kAddressPlaces)), 0u);
}

}  // namespace
}  // namespace openmps::server
