#include "tests/fuzz/example_values.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::data;
  fuzz::refuse_or_read([&] {
    parse_sequence(
        fuzz::to_bytes(data, size), [](std::string_view, const FeatureValues& values) { fuzz::read_values(values); },
        [](std::string_view key, const FeatureSteps& steps) {
          fuzz::touch(key);
          steps.for_each([](const FeatureValues& values) { fuzz::read_values(values); });
        });
  });
  return 0;
}
