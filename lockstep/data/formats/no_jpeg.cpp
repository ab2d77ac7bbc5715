#include "lockstep/base/error.h"
#include "lockstep/data/formats/image.h"

namespace lockstep::data {
namespace {

[[noreturn]] void refuse(const char* operation) {
  throw c10::NotImplementedError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str("[", operation, "] lockstep was built without libjpeg; install libjpeg62-turbo-dev and build again"));
}

}  // namespace

at::Tensor decode_jpeg(const Bytes&, const ImageOptions&) { refuse("decode_jpeg"); }
Bytes encode_jpeg(const at::Tensor&, const JpegOptions&) { refuse("encode_jpeg"); }

}  // namespace lockstep::data
