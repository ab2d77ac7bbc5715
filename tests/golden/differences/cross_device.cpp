#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/golden/differences/topics.h"
#include "tests/golden/tensors.h"

namespace lockstep::golden::rules::cross_device {
namespace {

constexpr const char* kTopic = "cross_device";

bool has_fraction_of_bytes(const Case& c) { return c.field("bytes_per_pack").is_number_float(); }

bool reduces_odd_number_in_batch(const Case& c) {
  return c.call == "batch_reduce" && c.text("implementation").starts_with("Hierarchical") &&
         c.in.at("devices").get<int>() % 2 == 1;
}

Json mirrored_sums(const Case& c) {
  const int num_devices = c.in.at("devices");
  Json results = Json::array();
  for (const Json& value : c.in.at("values")) {
    const at::Tensor all = tensor_from_json("float32", value);
    const Json one = to_json(c.text("op") == "SUM" ? all.sum(0) : all.mean(0));
    results.push_back({{"mirrored", std::vector<Json>(num_devices, one)}});
  }
  return results;
}

}  // namespace

void add(std::vector<Difference>& table) {
  table.push_back({"fraction of a byte", kTopic, has_fraction_of_bytes, "accepts any number as bytes_per_pack",
                   "does not compile", "bytes are counted in whole numbers", expect_no_compile()});
  table.push_back({"unknown shapes", kTopic, [](const Case& c) { return c.call == "group_by_size_unknown"; },
                   "makes one pack if a shape is not known before the program runs", "does not compile",
                   "LibTorch tensors always know their shape", expect_no_compile()});
  table.push_back({"hierarchical copy over an odd number of devices", kTopic, reduces_odd_number_in_batch,
                   "leaves the last device out of the sum: 10 + 11 + 12 is 21", "the sum over all devices",
                   "no data are lost", expect_value(mirrored_sums)});
}

}  // namespace lockstep::golden::rules::cross_device
