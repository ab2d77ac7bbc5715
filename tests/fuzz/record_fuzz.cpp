#include <cstring>
#include <string>

#include "lockstep/base/crc32c.h"
#include "lockstep/data/formats/records/record_reader.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

using namespace lockstep::data;

void read_records(const Bytes& contents, int64_t skip) {
  fuzz::refuse_or_read([&] {
    RecordReader reader(contents, "fuzz");
    reader.skip(skip);
    for (Bytes record; reader.next(record);) fuzz::touch(record);
  });
}

// Puts right the checksum of each length and, where the record is whole, that of its payload: no fuzzer guesses them.
std::string with_record_checksums(std::string file) {
  size_t at = 0;
  while (file.size() - at >= 12) {
    uint64_t length = 0;
    std::memcpy(&length, &file[at], sizeof(length));
    const uint32_t length_sum = lockstep::masked_crc32c({&file[at], 8});
    std::memcpy(&file[at + 8], &length_sum, sizeof(length_sum));
    const size_t rest = file.size() - at - 12;
    if (rest < 4 || length > rest - 4) break;
    const uint32_t sum = lockstep::masked_crc32c({&file[at] + 12, length});
    std::memcpy(&file[at] + 12 + length, &sum, sizeof(sum));
    at += 16 + length;
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  read_records(fuzz::to_bytes(data, size), 0);
  const Bytes sound(with_record_checksums(std::string(reinterpret_cast<const char*>(data), size)));
  read_records(sound, 0);
  read_records(sound, 1);
  return 0;
}
