#include "lockstep/base/error.h"
#include "lockstep/data/formats/records/example.h"

namespace lockstep::data {
namespace {

[[noreturn]] void fail_without_protozero() {
  LOCKSTEP_THROW(c10::NotImplementedError,
                 "[parse_example] lockstep was built without protozero; install libprotozero-dev and build again");
}

}  // namespace

void FeatureValues::read(std::span<float>) const { fail_without_protozero(); }
void FeatureValues::read(std::span<int64_t>) const { fail_without_protozero(); }
void FeatureValues::for_each(c10::function_ref<void(std::string_view)>) const { fail_without_protozero(); }
void FeatureSteps::for_each(c10::function_ref<void(const FeatureValues&)>) const { fail_without_protozero(); }
void parse_features(const Bytes&, FeatureVisitor) { fail_without_protozero(); }
void parse_sequence(const Bytes&, FeatureVisitor, StepsVisitor) { fail_without_protozero(); }

}  // namespace lockstep::data
