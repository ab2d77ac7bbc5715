#include "lockstep/data/formats/numpy/npy.h"
#include "tests/fuzz/tensor_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::data;
  const Bytes file = fuzz::to_bytes(data, size);
  fuzz::refuse_or_read([&] { fuzz::touch_elements(parse_npy(file)); });
  // Not aligned, so that it is copied.
  const Bytes shifted = Bytes("x" + file.str()).slice(1, file.size());
  fuzz::refuse_or_read([&] { fuzz::touch_elements(parse_npy(shifted)); });
  return 0;
}
