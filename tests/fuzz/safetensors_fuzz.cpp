#include "lockstep/state/formats/safetensors.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  lockstep::data::fuzz::refuse_or_read([&] {
    const auto header = lockstep::detail::parse_safetensors(file, static_cast<int64_t>(size), "file");
    const std::string_view values = std::string_view(file).substr(static_cast<size_t>(header.data_offset));
    for (const auto& entry : header.entries) {
      lockstep::data::fuzz::touch(
          values.substr(static_cast<size_t>(entry.begin), static_cast<size_t>(entry.end - entry.begin)));
    }
    lockstep::data::fuzz::touch(lockstep::detail::safetensors_start(header, 8));
  });
  // Headers are small: a length of their own leads further in.
  std::string framed(8, '\0');
  for (size_t i = 0; i < 8; ++i) framed[i] = static_cast<char>(size >> (8 * i) & 255);
  framed += file;
  lockstep::data::fuzz::refuse_or_read(
      [&] { lockstep::detail::parse_safetensors(framed, static_cast<int64_t>(framed.size()), "file"); });
  return 0;
}
