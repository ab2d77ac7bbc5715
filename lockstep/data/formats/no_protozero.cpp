#include "lockstep/base/error.h"
#include "lockstep/data/formats/example.h"

namespace lockstep::data {
namespace {

[[noreturn]] void refuse() {
  throw c10::NotImplementedError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      "[parse_example] lockstep was built without protozero; install libprotozero-dev and build again");
}

}  // namespace

void FeatureValues::read(std::span<float>) const { refuse(); }
void FeatureValues::read(std::span<int64_t>) const { refuse(); }
void FeatureValues::for_each(c10::function_ref<void(std::string_view)>) const { refuse(); }
void FeatureSteps::for_each(c10::function_ref<void(const FeatureValues&)>) const { refuse(); }
void parse_features(const Bytes&, FeatureVisitor) { refuse(); }
void parse_sequence(const Bytes&, FeatureVisitor, StepsVisitor) { refuse(); }

}  // namespace lockstep::data
