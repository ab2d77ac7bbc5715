#pragma once

#include <vector>

#include "lockstep/data/formats/records/example.h"
#include "tests/fuzz/fuzz_input.h"

namespace lockstep::data::fuzz {

/// Reads all values of one key, in every way there is.
inline void read_values(const FeatureValues& values) {
  touch(values.packed_floats());
  values.for_each([&](std::string_view value) { touch(values.share(value)); });
  if (values.kind() == FeatureKind::Bytes && values.size() > 0) touch(values.first());
  if (values.kind() == FeatureKind::Float) {
    std::vector<float> numbers(values.size());
    values.read(std::span(numbers));
  }
  if (values.kind() == FeatureKind::Int64) {
    std::vector<int64_t> numbers(values.size());
    values.read(std::span(numbers));
  }
}

}  // namespace lockstep::data::fuzz
