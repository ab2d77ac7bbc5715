#include "lockstep/data/formats/archive/tar.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::data;
  const Bytes archive = fuzz::to_bytes(data, size);
  fuzz::refuse_or_read([&] {
    TarReader reader = TarReader::from_memory(archive);
    for (TarEntry entry; reader.next(entry);) fuzz::touch(entry.contents);
  });
  fuzz::refuse_or_read([&] {
    TarSampleReader reader(TarReader::from_memory(archive));
    reader.skip(1);
    for (TarSample sample; reader.next(sample);) {
      for (const auto& [kind, contents] : sample.files) fuzz::touch(contents);
    }
  });
  return 0;
}
