#include "lockstep/data/formats/text/lines.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::data;
  for (const Compression compression : {Compression::Auto, Compression::None, Compression::Zlib}) {
    fuzz::refuse_or_read([&] {
      LineReader reader(fuzz::to_bytes(data, size), "fuzz", {.compression = compression});
      reader.skip(1);
      for (Bytes line; reader.next(line);) fuzz::touch(line);
    });
  }
  return 0;
}
