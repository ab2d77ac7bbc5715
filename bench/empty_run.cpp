#include "bench/empty_run.h"

#include <vector>

#include "bench/median.h"
#include "lockstep/device/logical_devices.h"
#include "lockstep/strategy/strategies/mirrored.h"

namespace lockstep::bench {

EmptyRunResult bench_empty_run(int replicas) {
  set_logical_devices("CPU", replicas);
  std::vector<std::string> devices;
  for (int i = 0; i < replicas; ++i) devices.push_back("CPU:" + std::to_string(i));
  const MirroredStrategy strategy(devices);
  const auto empty = [&] { strategy.run([] {}); };
  time_of(2000, empty);
  std::vector<double> samples;
  for (int i = 0; i < 200; ++i) samples.push_back(time_of(100, empty));
  return {"run", replicas, median(samples)};
}

}  // namespace lockstep::bench
