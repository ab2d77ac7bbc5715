#include "lockstep/data/formats/text/fixed_length.h"
#include "tests/fuzz/fuzz_input.h"

// The first three bytes are the sizes.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::data;
  if (size < 3) return 0;
  for (const Compression compression : {Compression::Auto, Compression::None, Compression::Zlib}) {
    fuzz::refuse_or_read([&] {
      FixedLengthReader reader(
          fuzz::to_bytes(data + 3, size - 3), "fuzz",
          {.record_bytes = data[0] + 1, .header_bytes = data[1], .footer_bytes = data[2], .compression = compression});
      reader.skip(data[0] % 3);
      for (Bytes record; reader.next(record);) fuzz::touch(record);
    });
  }
  return 0;
}
