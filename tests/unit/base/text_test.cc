// SPDX-License-Identifier: Apache-2.0
// Text helpers and the format of log lines.
#include "base/text.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <regex>

#include "base/log.h"

namespace openmps {
namespace {

TEST(Text, NumbersAreDigitsOnlyAndBounded) {
  EXPECT_EQ(parse_unsigned("0", 10), 0u);
  EXPECT_EQ(parse_unsigned("10", 10), 10u);
  EXPECT_EQ(parse_unsigned("18446744073709551615", UINT64_MAX), UINT64_MAX);
  for (const char* bad : {"", "-1", "+1", " 1", "1 ", "0x1", "11", "18446744073709551616"}) {
    EXPECT_EQ(parse_unsigned(bad, 10), std::nullopt) << bad;
  }
  EXPECT_EQ(parse_unsigned("18446744073709551616", UINT64_MAX), std::nullopt);
  EXPECT_EQ(parse_unsigned("5", 3), std::nullopt) << "a digit above a small bound";
}

TEST(Text, BytesHaveBinaryUnits) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("65536"), 65536u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("3M"), 3u << 20);
  EXPECT_EQ(parse_bytes("2G"), 2ull << 30);
  for (const char* bad : {"", "K", "64k", "64KB", "1.5G", "-1K", " 1K", "17179869184G"}) {
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
  }
}

TEST(Text, FieldsAreCutAndTerminated) {
  char field[4];
  fill_field(field, "abcdef");
  EXPECT_STREQ(field, "abc");
  fill_field(field, "");
  EXPECT_STREQ(field, "");
  const char full[3] = {'x', 'y', 'z'};
  EXPECT_EQ(field_text(full), "xyz") << "a field from a peer may lack the terminating NUL";
}

TEST(Text, WordsAreSplitAtBlanks) {
  EXPECT_EQ(split_words("  a\t b\r"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(split_words(" \t").empty());
}

TEST(Text, ControlCharactersOfPeersAreReplaced) {
  EXPECT_EQ(printable("a\nb\x1b[2J\x7f\xc3\xa4"), "a?b?[2J?\xc3\xa4");
}

TEST(Log, LinesThatAreLostOnAFullDiskAreCounted) {
  const UniqueFd room(memfd_create("log", MFD_CLOEXEC));
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  const Log log("Control", UniqueFd(full));
  log.write("one\ntwo");
  log.write("three");
  ASSERT_EQ(dup2(room.get(), full), full);  // the file can grow again
  log.write("four");
  log.write("five");
  char buffer[1024];
  const ssize_t got = pread(room.get(), buffer, sizeof(buffer), 0);
  ASSERT_GT(got, 0);
  const std::string text(buffer, static_cast<size_t>(got));
  EXPECT_NE(text.find("] 3 lines before this one are lost: No space left on device\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
}

TEST(Log, LinesLookLikeThoseOfNvidiasDaemon) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Log log("Control", UniqueFd(ends[1]));
  log.write("one");
  log.write("two\nthree\x1b\n");
  log.write("");
  char buffer[1024];
  const ssize_t got = read(ends[0], buffer, sizeof(buffer));
  close(ends[0]);
  ASSERT_GT(got, 0);
  const std::string entry = R"(\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} Control )" +
                            format_text("%5d", static_cast<int>(getpid())) + R"(\] )";
  EXPECT_TRUE(std::regex_match(
      std::string(buffer, static_cast<size_t>(got)),
      std::regex(entry + "one\n" + entry + "two\n" + entry + "three\\?\n" + entry + "\n")));
}

}  // namespace
}  // namespace openmps
