#include "lockstep/base/json_text.h"

#include <string_view>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using namespace std::string_view_literals;

TEST(JsonText, EscapesWhatJsonDoesNotTake) {
  EXPECT_EQ(json_quoted(""), "\"\"");
  EXPECT_EQ(json_quoted("a \"b\" \\c"), R"("a \"b\" \\c")");
  EXPECT_EQ(json_quoted("a\n\tb\0\x1f"sv), R"("a\u000a\u0009b\u0000\u001f")");
  EXPECT_EQ(json_quoted("ä 数 😀\x7f"), "\"ä 数 😀\x7f\"");
}

TEST(JsonText, ReplacesWhatIsNoUtf8) {
  EXPECT_EQ(json_quoted("a\xff"
                        "b"),
            "\"a\ufffd"
            "b\"");
  EXPECT_EQ(json_quoted("\xc3"), "\"\ufffd\"");
  EXPECT_EQ(json_quoted("\xc0\xaf"), "\"\ufffd\ufffd\"");
  EXPECT_EQ(json_quoted("\x80"), "\"\ufffd\"");
  EXPECT_EQ(json_quoted("\xed\xa0\x80"), "\"\ufffd\ufffd\ufffd\"");
  EXPECT_EQ(json_quoted("\xf4\x90\x80\x80"), "\"\ufffd\ufffd\ufffd\ufffd\"");
  EXPECT_EQ(json_quoted("\xe6\x95"), "\"\ufffd\ufffd\"");
  EXPECT_EQ(json_quoted("\xe6\"\\"), "\"\ufffd\\\"\\\\\"");
}

}  // namespace
}  // namespace lockstep
