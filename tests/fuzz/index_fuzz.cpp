#include "lockstep/base/crc32c.h"
#include "lockstep/state/checkpoint_index.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

/// The input as it is, and with the right checksum, behind which damage would not be reached.
std::string with_own_sum(std::string_view text) {
  char digits[9];
  std::snprintf(digits, sizeof(digits), "%08x", lockstep::crc32c(text));
  return std::string(text) + ",\n\"checksum\": \"" + digits + "\"\n}\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string_view body = std::string_view(text).substr(0, text.rfind(",\n\"checksum\""));
  for (const std::string& input : {text, with_own_sum(text), with_own_sum(body)}) {
    lockstep::data::fuzz::refuse_or_read([&] {
      const lockstep::detail::IndexContent content = lockstep::detail::parse_index(input, "index");
      for (const auto& part : content.info.parts) lockstep::data::fuzz::touch(part.str());
      lockstep::data::fuzz::touch(lockstep::detail::index_text(content.info, content.values));
    });
  }
  lockstep::data::fuzz::refuse_or_read(
      [&] { lockstep::data::fuzz::touch(lockstep::detail::PartIndex::parse(text).str()); });
  return 0;
}
