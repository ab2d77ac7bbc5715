#include "lockstep/data/formats/numpy/npz.h"
#include "tests/fuzz/tensor_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::data;
  fuzz::refuse_or_read([&] {
    for (const auto& [name, tensor] : parse_npz(fuzz::to_bytes(data, size))) fuzz::touch_elements(tensor);
  });
  return 0;
}
