#include "tests/fuzz/example_values.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::data;
  fuzz::refuse_or_read([&] {
    parse_features(fuzz::to_bytes(data, size), [](std::string_view key, const FeatureValues& values) {
      fuzz::touch(key);
      fuzz::read_values(values);
    });
  });
  return 0;
}
