#include "lockstep/base/error.h"
#include "lockstep/data/formats/image/image.h"

namespace lockstep::data {
namespace {

[[noreturn]] void fail_without_jpeg(const char* operation) {
  LOCKSTEP_THROW(c10::NotImplementedError, "[", operation,
                 "] lockstep was built without libjpeg; install libjpeg62-turbo-dev and build again");
}

}  // namespace

at::Tensor decode_jpeg(const Bytes&, const ImageOptions&) { fail_without_jpeg("decode_jpeg"); }
Bytes encode_jpeg(const at::Tensor&, const JpegOptions&) { fail_without_jpeg("encode_jpeg"); }

}  // namespace lockstep::data
