#include <utility>

#include "lockstep/data/formats/image/image.h"
#include "lockstep/data/formats/stream/files.h"

namespace lockstep::data {

at::Tensor read_image(const std::string& path, ImageOptions options) {
  options.name = path;
  return decode_image(detail::map_or_read(path, "read_image"), options);
}

}  // namespace lockstep::data
