#include "lockstep/base/error.h"
#include "lockstep/data/formats/image/image.h"

namespace lockstep::data {
namespace {

[[noreturn]] void fail_without_png(const char* operation) {
  LOCKSTEP_THROW(c10::NotImplementedError, "[", operation,
                 "] lockstep was built without libpng; install libpng-dev and build again");
}

}  // namespace

at::Tensor decode_png(const Bytes&, const ImageOptions&) { fail_without_png("decode_png"); }
Bytes encode_png(const at::Tensor&) { fail_without_png("encode_png"); }

}  // namespace lockstep::data
