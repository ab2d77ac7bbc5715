#include "lockstep/data/formats/records/record_reader.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::data;
  for (const Compression compression : {Compression::Gzip, Compression::Zlib}) {
    for (const int64_t skip : {0, 2}) {
      fuzz::refuse_or_read([&] {
        RecordReader reader(fuzz::to_bytes(data, size), "fuzz", {.compression = compression});
        reader.skip(skip);
        for (Bytes record; reader.next(record);) fuzz::touch(record);
      });
    }
  }
  return 0;
}
