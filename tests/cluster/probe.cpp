// Prints what the library sees of the launch that it is part of, for mpirun_test.cpp.

#include <iostream>

#include "lockstep/cluster/multi_worker.h"
#include "lockstep/cluster/resolve_cluster.h"

int main() {
  const lockstep::ClusterChoice choice = lockstep::choose_cluster();
  const auto place = lockstep::worker_place(*choice.resolver);
  if (!place) {
    std::cout << "alone" << std::endl;
    return 1;
  }
  const auto local = choice.resolver->local_task();
  // One write, so that lines of several ranks do not mix.
  const std::string line = choice.candidates.back().name + " worker " + std::to_string(place->index) + " of " +
                           std::to_string(place->num_workers) + " local " + std::to_string(local ? local->index : -1) +
                           " at " + place->coordinator + "\n";
  std::cout << line << std::flush;
  return 0;
}
