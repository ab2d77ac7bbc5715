#pragma once

#include <vector>

#include "lockstep/xla/graph/emit.h"

namespace lockstep::xla {

/// Inside: which values of a trace are likely to be cut into tiles, as annotated or as what they are computed from
/// element by element. The partitioner decides; this is to know where it has to cut a value in another way.
///
/// With several replicas of several partitions XLA cannot do that by itself: its check of programs refuses the
/// exchange (all-to-all) that it makes of it. The detour, the whole value on each device, works.
class LikelyLayouts {
 public:
  LikelyLayouts(const Trace& trace, const EmitOptions& options);

  /// Whether `value` needs the detour to be laid out as `layout`.
  bool needs_detour(const Node& value, LayoutPtr layout) const;

 private:
  /// Empty where no value needs it.
  std::vector<LayoutPtr> layouts_;
};

}  // namespace lockstep::xla
