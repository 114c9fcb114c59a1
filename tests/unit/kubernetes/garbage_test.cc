// SPDX-License-Identifier: Apache-2.0
// Which namespaces have lost their container.
#include "kubernetes/garbage.h"

#include <gtest/gtest.h>

namespace openmps::kubernetes {
namespace {

using Names = std::vector<std::string>;

TEST(Garbage, WhatIsListedNoLonger) {
  Garbage garbage(10, 1000);
  garbage.use("a", 100);
  garbage.list({"a", "other"}, 105);
  EXPECT_EQ(garbage.find(114), Names());
  EXPECT_EQ(garbage.find(115), Names{"a"});
  garbage.list({"a"}, 114);
  EXPECT_EQ(garbage.find(115), Names());
  garbage.list({}, 120);
  EXPECT_EQ(garbage.find(124), Names{"a"});
  garbage.postpone("a", 130);
  EXPECT_EQ(garbage.find(139), Names());
  EXPECT_EQ(garbage.find(140), Names{"a"});
  garbage.forget("a");
  EXPECT_EQ(garbage.find(10000), Names());
}

TEST(Garbage, WhatWasNeverListedMayBeAnInitContainers) {
  Garbage garbage(10, 1000);
  garbage.use("a", 100);
  garbage.list({}, 500);
  EXPECT_EQ(garbage.find(1099), Names());
  EXPECT_EQ(garbage.find(1100), Names{"a"});
}

TEST(Garbage, TheSameSharesMayBeAnotherPodsNext) {
  Garbage garbage(10, 1000);
  garbage.use("a", 100);
  garbage.list({"a"}, 101);
  garbage.use("a", 200);
  EXPECT_EQ(garbage.find(300), Names());
  // A list that was asked for before says nothing against it.
  garbage.list({"a"}, 150);
  EXPECT_EQ(garbage.find(209), Names());
  EXPECT_EQ(garbage.find(210), Names{"a"});
}

TEST(Garbage, TheDaemonSaysWhichThereAre) {
  Garbage garbage(10, 1000);
  garbage.use("a", 100);
  garbage.list({"a"}, 101);
  garbage.set({"a", "b"}, 200);
  EXPECT_EQ(garbage.find(200), Names{"a"}) << "it is known since 100";
  EXPECT_EQ(garbage.find(1200), (Names{"a", "b"}));
  garbage.set({"b"}, 300);
  EXPECT_EQ(garbage.find(1200), Names{"b"});
}

}  // namespace
}  // namespace openmps::kubernetes
