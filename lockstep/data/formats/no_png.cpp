#include "lockstep/base/error.h"
#include "lockstep/data/formats/image.h"

namespace lockstep::data {
namespace {

[[noreturn]] void refuse(const char* operation) {
  throw c10::NotImplementedError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str("[", operation, "] lockstep was built without libpng; install libpng-dev and build again"));
}

}  // namespace

at::Tensor decode_png(const Bytes&, const ImageOptions&) { refuse("decode_png"); }
Bytes encode_png(const at::Tensor&) { refuse("encode_png"); }

}  // namespace lockstep::data
