#include "lockstep/base/error.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string what_is_thrown() {
  try {
    LOCKSTEP_CHECK_VALUE(false, "[test] must hold: x=", 3);
  } catch (const c10::ValueError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(ErrorTest, CarriesABacktraceOnlyWhereItIsAskedFor) {
  for (const char* variable : {"LOCKSTEP_BACKTRACE", "TORCH_SHOW_CPP_STACKTRACES"}) {
    unsetenv(variable);
    EXPECT_EQ(what_is_thrown().substr(0, 20), "[test] must hold: x=");
    EXPECT_LE(what_is_thrown().size(), sizeof("[test] must hold: x=3\n")) << what_is_thrown();
    setenv(variable, "0", 1);
    EXPECT_EQ(what_is_thrown().find("frame"), std::string::npos) << variable << "=0";
    setenv(variable, "1", 1);
    EXPECT_NE(what_is_thrown().find("frame #0"), std::string::npos) << variable << "=1";
    unsetenv(variable);
  }
}

TEST(ErrorTest, EveryTypeIsThrownWithItsMessageAlone) {
  unsetenv("LOCKSTEP_BACKTRACE");
  const auto check = [](auto&& raise, const char* type) {
    try {
      raise();
      ADD_FAILURE() << type;
    } catch (const c10::Error& error) {
      EXPECT_EQ(error.msg(), std::string("[test] ") + type);
      EXPECT_EQ(std::string(error.what()).find("Exception raised from"), std::string::npos);
    }
  };
  check([] { LOCKSTEP_CHECK_TYPE(false, "[test] TypeError"); }, "TypeError");
  check([] { LOCKSTEP_CHECK_CONTEXT(false, "[test] ContextError"); }, "ContextError");
  check([] { LOCKSTEP_CHECK_COLLECTIVE(false, "[test] CollectiveError"); }, "CollectiveError");
  check([] { LOCKSTEP_CHECK_DATA(false, "[test] DataError"); }, "DataError");
  check([] { LOCKSTEP_THROW(EndOfData, "[test] EndOfData"); }, "EndOfData");
}

}  // namespace
}  // namespace lockstep
