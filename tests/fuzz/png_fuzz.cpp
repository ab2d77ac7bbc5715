#include <algorithm>
#include <string>

#include "lockstep/data/formats/image/image.h"
#include "tests/fuzz/tensor_input.h"

namespace {

using namespace lockstep::data;

uint32_t crc32(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~crc;
}

// Puts right the checksum of each chunk: no fuzzer guesses them.
std::string with_chunk_checksums(std::string file) {
  for (size_t at = 8; file.size() - std::min(at, file.size()) >= 12;) {
    uint64_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<unsigned char>(file[at + i]);
    if (length > file.size() - at - 12) break;
    const uint32_t sum = crc32(std::string_view(file).substr(at + 4, 4 + length));
    for (size_t i = 0; i < 4; ++i) file[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i) & 0xff);
    at += 12 + length;
  }
  return file;
}

void decode_image(const Bytes& file, int64_t channels, at::ScalarType dtype) {
  fuzz::refuse_or_read(
      [&] { fuzz::touch_elements(decode_png(file, {.channels = channels, .dtype = dtype, .max_pixels = 1 << 14})); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes file(with_chunk_checksums(std::string(reinterpret_cast<const char*>(data), size)));
  fuzz::refuse_or_read([&] { image_size(file); });
  for (const int64_t channels : {0, 1, 3, 4}) decode_image(file, channels, at::kByte);
  for (const int64_t channels : {0, 1, 4}) decode_image(file, channels, at::kInt);
  return 0;
}
