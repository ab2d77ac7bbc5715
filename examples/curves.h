// What the training examples share: replicas on this machine, and a table of the losses of two trainings.

#pragma once

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include "lockstep/lockstep.h"

// Replicas on the processors of this machine: one has as many threads as each of several.
inline lockstep::MirroredStrategy replicas_on_cpus(int count, int of_all) {
  lockstep::set_logical_devices("CPU", of_all);
  lockstep::set_threads_per_replica(std::max(1, lockstep::num_hardware_threads() / of_all));
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) devices.push_back("CPU:" + std::to_string(i));
  return lockstep::MirroredStrategy(devices);
}

// Prints the losses of two trainings with the same global batch, and returns the largest difference relative to the
// loss of the first epoch.
inline double compare_curves(const lockstep::History& one, const lockstep::History& several, int replicas) {
  const auto first = one.values("loss");
  const auto second = several.values("loss");
  double largest = 0;
  std::cout << "loss of each epoch\n  epoch   1 replica   " << replicas << " replicas\n" << std::setprecision(6);
  for (size_t i = 0; i < first.size(); ++i) {
    std::cout << std::setw(7) << i + 1 << std::setw(12) << first[i] << std::setw(13) << second.at(i) << '\n';
    largest = std::max(largest, std::abs(first[i] - second[i]) / first[0]);
  }
  std::cout << "largest difference " << std::scientific << std::setprecision(1) << largest << std::fixed
            << std::setprecision(4) << " of the first loss" << std::endl;
  return largest;
}
