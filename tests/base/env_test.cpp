#include "lockstep/base/env.h"

#include <cstdlib>

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

namespace lockstep::env {
namespace {

/// Sets a variable for the length of a test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~ScopedVariable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(EnvTest, UnsetVariableHasItsDefault) {
  unsetenv("LOCKSTEP_COLLECTIVE_TIMEOUT");
  EXPECT_EQ(given("LOCKSTEP_COLLECTIVE_TIMEOUT"), std::nullopt);
  EXPECT_EQ(integer("LOCKSTEP_COLLECTIVE_TIMEOUT"), 600);
}

TEST(EnvTest, ReadsFlagsInAnyCase) {
  for (const char* word : {"1", "true", "ON", "Yes"}) {
    ScopedVariable variable("LOCKSTEP_ONEDNN", word);
    EXPECT_TRUE(flag("LOCKSTEP_ONEDNN")) << word;
  }
  ScopedVariable variable("LOCKSTEP_ONEDNN", "off");
  EXPECT_FALSE(flag("LOCKSTEP_ONEDNN"));
}

TEST(EnvTest, ReadsFractionsOfSeconds) {
  ScopedVariable variable("LOCKSTEP_COLLECTIVE_TIMEOUT", "1.5");
  EXPECT_EQ(seconds("LOCKSTEP_COLLECTIVE_TIMEOUT"), std::chrono::milliseconds(1500));
}

TEST(EnvTest, RejectsWhatItCannotRead) {
  ScopedVariable variable("LOCKSTEP_COLLECTIVE_TIMEOUT", "soon");
  EXPECT_THROW(integer("LOCKSTEP_COLLECTIVE_TIMEOUT"), c10::ValueError);
  EXPECT_THROW(seconds("LOCKSTEP_COLLECTIVE_TIMEOUT"), c10::ValueError);
}

TEST(EnvTest, EveryVariableIsDescribedAndSorted) {
  std::string_view previous;
  for (const auto& variable : variables()) {
    EXPECT_TRUE(variable.name.starts_with("LOCKSTEP_"));
    EXPECT_TRUE(variable.meaning.ends_with(".")) << variable.name;
    EXPECT_LT(previous, variable.name);
    previous = variable.name;
  }
}

}  // namespace
}  // namespace lockstep::env
