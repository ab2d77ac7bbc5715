#include "lockstep/data/formats/records/example.h"

namespace lockstep::data {

std::ostream& operator<<(std::ostream& out, FeatureKind kind) {
  switch (kind) {
    case FeatureKind::None:
      return out << "nothing";
    case FeatureKind::Bytes:
      return out << "bytes";
    case FeatureKind::Float:
      return out << "float";
    case FeatureKind::Int64:
      return out << "int64";
  }
  return out << "unknown";
}

}  // namespace lockstep::data
