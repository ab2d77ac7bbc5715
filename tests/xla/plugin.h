#pragma once

#include <gtest/gtest.h>

#include "lockstep/xla/pjrt/client.h"
#include "lockstep/xla/pjrt/find_plugin.h"

/// Skips the test where no plugin is found.
#define LOCKSTEP_NEEDS_PLUGIN()                                                                    \
  if (::lockstep::xla::find_plugin().empty()) {                                                    \
    GTEST_SKIP() << "this test needs a plugin of XLA; " << ::lockstep::xla::how_to_get_a_plugin(); \
  }                                                                                                \
  static_assert(true, "the macro ends with a semicolon")
