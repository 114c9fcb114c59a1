// SPDX-License-Identifier: Apache-2.0
// The reservation of a client: by process, by program, or as a static partition.
#include "server/reservations.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace openmps::server {
namespace {

TEST(Reservations, HaveNoMembersUntilTheWorkerHasAnswered) {
  Reservations reservations;
  wire::Query query;
  query.ticket = 7;
  query.change.sms = 4;
  fill_field(query.change.name, std::string("program"));
  const Result<Reservation*> made = reservations.add(query);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(reservations.devices(), 0u);
  EXPECT_EQ(reservations.number_for({1, 1, "./program"}), 0u)
      << "a worker that refuses the reservation would refuse the client, too";
  (*made)->ticket = 0;
  EXPECT_EQ(reservations.number_for({1, 1, "./program"}), (*made)->wish.number);
  EXPECT_EQ(reservations.number_for({1, 1, "./another"}), 0u);
}

TEST(Reservations, AStaticPartitionBelongsToNoProgram) {
  Reservations reservations;
  const wire::StaticPartition partition{.device = 1, .sms = 8, .groups = {0b11, 0}};
  const Result<Reservation*> made = reservations.add(partition);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(reservations.find(partition), *made);
  EXPECT_EQ(reservations.find(wire::StaticPartition{.device = 0, .sms = 8, .groups = {0b11, 0}}),
            nullptr);
  EXPECT_EQ(reservations.number_for({0, 1, ""}), 0u);
  EXPECT_EQ(reservations.devices(), 0b10u);
  EXPECT_EQ((*made)->wish.lends, 0u);
  const auto shareable = reservations.add(wire::StaticPartition{
      .device = 1, .sms = 8, .groups = {0b1100, 0}, .lends = 1, .most_sms = 12});
  ASSERT_TRUE(shareable.ok());
  EXPECT_EQ((*shareable)->wish.lends, 1u);
  EXPECT_EQ((*shareable)->wish.most_sms, 12u) << "the workers are told what it may borrow";
}

}  // namespace
}  // namespace openmps::server
