#include "lockstep/data/formats/image/image.h"
#include "tests/fuzz/tensor_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::data;
  const Bytes file = fuzz::to_bytes(data, size);
  fuzz::refuse_or_read([&] { image_size(file); });
  for (const int64_t channels : {0, 1, 4}) {
    fuzz::refuse_or_read([&] {
      fuzz::touch_elements(decode_jpeg(file, {.channels = channels, .dtype = at::kByte, .max_pixels = 1 << 14}));
    });
  }
  return 0;
}
