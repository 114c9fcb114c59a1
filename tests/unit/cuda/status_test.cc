// SPDX-License-Identifier: Apache-2.0
// Code and message of a Status, of its copies, and of a Result.
#include "cuda/status.h"

#include <gtest/gtest.h>

#include <utility>

namespace openmps {
namespace {

TEST(StatusTest, SuccessHasNoMessage) {
  const Status success;
  EXPECT_TRUE(success.ok());
  EXPECT_EQ(success.code(), CUDA_SUCCESS);
  EXPECT_EQ(success.message(), "");
}

TEST(StatusTest, CopiesHaveTheSameCodeAndMessage) {
  Status error(CUDA_ERROR_INVALID_VALUE, "a grid of 0 blocks in a launch");
  const Status copy = error;
  EXPECT_FALSE(copy.ok());
  EXPECT_EQ(copy.code(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copy.message(), "a grid of 0 blocks in a launch");
  const Status moved = std::move(error);
  EXPECT_EQ(moved.message(), copy.message());
  error = Status();
  EXPECT_TRUE(error.ok());
  EXPECT_EQ(error.message(), "");
  EXPECT_EQ(copy.message(), "a grid of 0 blocks in a launch");
}

TEST(StatusTest, AResultWithoutAValueHasItsStatus) {
  const Result<int> none(Status(CUDA_ERROR_NOT_FOUND, "no such thing"));
  EXPECT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(none.status().message(), "no such thing");
  EXPECT_TRUE(Result<int>(3).status().ok());
}

}  // namespace
}  // namespace openmps
