#pragma once

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

/// Expects that the statement throws this type, with a message of the usual form that has the text in it.
#define EXPECT_ERROR(statement, type, text)                                               \
  try {                                                                                   \
    statement;                                                                            \
    ADD_FAILURE() << "no error: " #statement;                                             \
  } catch (const type& error) {                                                           \
    EXPECT_THAT(std::string(error.what_without_backtrace()), ::testing::HasSubstr(text)); \
    EXPECT_EQ(std::string(error.what_without_backtrace()).front(), '[');                  \
  } catch (const std::exception& error) {                                                 \
    ADD_FAILURE() << "another error: " << error.what();                                   \
  }
