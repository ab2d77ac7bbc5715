#include <cstring>

#include "lockstep/state/formats/pickle_state.h"
#include "lockstep/state/formats/zip_directory.h"
#include "tests/fuzz/fuzz_input.h"

namespace {

lockstep::State read_pickle(std::string_view bytes) {
  const lockstep::detail::Pickle pickle(bytes, "file");
  return lockstep::detail::flatten_pickle(pickle, "file", [](const lockstep::detail::PickleTensor& tensor) {
    const lockstep::detail::TensorExtent extent = lockstep::detail::extent_of(tensor, "file");
    lockstep::StateTensor made;
    made.dtype = extent.dtype;
    made.sizes = tensor.sizes;
    return made;
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string file(reinterpret_cast<const char*>(data), size);
  lockstep::data::fuzz::refuse_or_read([&] { read_pickle(file); });
  lockstep::data::fuzz::refuse_or_read([&] {
    const auto read = [&](int64_t offset, std::span<char> target) {
      std::memcpy(target.data(), file.data() + offset, target.size());
    };
    for (const auto& [name, member] : lockstep::detail::stored_members(read, static_cast<int64_t>(size), "file")) {
      const auto bytes =
          std::string_view(file).substr(static_cast<size_t>(member.offset), static_cast<size_t>(member.num_bytes));
      lockstep::data::fuzz::touch(bytes);
      if (name.ends_with(".pkl")) lockstep::data::fuzz::refuse_or_read([&] { read_pickle(bytes); });
    }
  });
  return 0;
}
